"""Courses made for one test: `write_course` puts lesson folders on the disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

CourseWriter = Callable[..., Path]


def lesson_toml(
    id: str, needs: Sequence[str] = (), aliases: Sequence[str] = (), title: str | None = None, extra: str = ""
) -> str:
    return (
        f'id = "{id}"\n'
        f'title = "{title or id.title()}"\n'
        f"aliases = {list(aliases)!r}\n"
        f'line = "About {id}."\n'
        f"needs = {list(needs)!r}\n"
        "minutes = 10\n"
        'objectives = ["Know it."]\n' + extra
    )


@pytest.fixture
def write_course(tmp_path: Path) -> CourseWriter:
    """write({"a": [], "b": ["a"]}, written=["a"]) -> the content folder; numbers follow the dict's order."""

    def write(needs: Mapping[str, Sequence[str]], written: Sequence[str] = ()) -> Path:
        folder = tmp_path / "content"
        for number, (id, wanted) in enumerate(needs.items(), 1):
            lesson = folder / f"{number:02d}-{id}"
            lesson.mkdir(parents=True)
            (lesson / "lesson.toml").write_text(lesson_toml(id, wanted))
            if id in written:
                (lesson / "lesson.md").write_text(f"## What {id} is\n\nText.\n\n## Recap\n\nDone.\n")
        return folder

    return write
