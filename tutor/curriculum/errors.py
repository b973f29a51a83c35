"""What can be wrong with a course. `str(error)` names the place and the reason in one line.

CourseError
└── UnknownLesson   no lesson has this id, alias or title
"""

from __future__ import annotations

from pathlib import Path


class CourseError(Exception):
    """A lesson, quiz or lab file is wrong: `content/07-x/lesson.toml:12: reason`."""

    def __init__(self, reason: str, path: Path | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.path = path
        self.line = line
        super().__init__(f"{_place(path, line)}{reason}")


class UnknownLesson(CourseError):
    """Nothing in the course has this name; `suggestion` is the nearest id, if one is near."""

    def __init__(self, name: str, suggestion: str | None) -> None:
        self.name = name
        self.suggestion = suggestion
        hint = f" Did you mean {suggestion}?" if suggestion else ""
        super().__init__(f"There is no lesson {name!r}.{hint} `tutor list` shows all lessons.")


def _place(path: Path | None, line: int | None) -> str:
    if path is None:
        return ""
    # content/07-x/lesson.toml reads better than the absolute path and is the same everywhere
    shown = "/".join(path.parts[-3 if path.suffix else -2 :])
    return f"{shown}:{line}: " if line else f"{shown}: "
