"""`tutor author new`: a lesson and its exercise to write over. It is whole: lint and mutate pass on it.

The files come from `skeleton/` beside this module. They end in .txt so that no tool takes them for code of
the tutor; `$id`, `$title`, `$needs` and `$file` are filled in.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from tutor.curriculum.dag import Course
from tutor.grading.errors import AuthorError

TEMPLATES = Path(__file__).parent / "skeleton"
LESSON_FILES = ("lesson.toml", "lesson.md", "quiz.toml")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NUMBER = re.compile(r"(\d{2})-")


def make_skeleton(
    folder: Path, ident: str, title: str, needs: Sequence[str], course: Course
) -> tuple[Path, Path]:
    """Make `content/NN-ID/` and `exercises/ID/` under `folder`; returns both. Never overwrites.

    course: what there is already, the lessons of `folder` included. Raises AuthorError: an id of another
    form, an id or title that is taken, a need that is no lesson, a folder that cannot be written.
    """
    _check(ident, title, needs, course)
    lesson = folder / "content" / f"{_next_number(folder / 'content'):02d}-{ident}"
    exercise = folder / "exercises" / ident
    values = {"id": ident, "title": title, "needs": json.dumps(list(needs)), "file": _file_name(ident)}
    taken = next((path for path in (lesson, exercise) if path.exists()), None)
    if taken is not None:
        raise AuthorError(f"{taken} is there already; nothing was changed.")
    names = [str(path.relative_to(TEMPLATES))[: -len(".txt")] for path in sorted(TEMPLATES.rglob("*.txt"))]
    try:
        for name in names:
            path = (lesson if name in LESSON_FILES else exercise) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")
            path.write_text(Template(text).substitute(values), encoding="utf-8")
    except OSError as error:
        raise AuthorError(f"Cannot write {error.filename} ({error.strerror}).") from error
    return lesson, exercise


def _check(ident: str, title: str, needs: Sequence[str], course: Course) -> None:
    if _ID.fullmatch(ident) is None:
        raise AuthorError(f"{ident!r} is no id: small letters, digits and single dashes, such as kv-cache.")
    if not title.strip() or any(char in title for char in '"\\$\n'):
        raise AuthorError("The title is empty, or holds a quote, a backslash, a dollar or a line end.")
    names = {name.casefold(): each.id for each in course for name in (each.id, each.title, *each.aliases)}
    for name in (ident, title):
        if name.casefold() in names:
            raise AuthorError(f"The name {name!r} is taken by the lesson {names[name.casefold()]!r}.")
    for need in needs:
        if need not in course:
            raise AuthorError(f"There is no lesson {need!r} to need; `tutor list` shows all lessons.")


def _next_number(content: Path) -> int:
    found = [_NUMBER.match(path.name) for path in content.iterdir()] if content.is_dir() else []
    return max((int(match[1]) for match in found if match), default=0) + 1


def _file_name(ident: str) -> str:
    """A module name: `kv-cache` → `kv_cache.py`; `class` and `4-bit` cannot be imported as they are."""
    name = ident.replace("-", "_")
    return f"{name if name.isidentifier() and not keyword.iskeyword(name) else f'lesson_{name}'}.py"
