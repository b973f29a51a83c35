"""The course as shipped is whole, and the lint notices when it is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tutor.curriculum.lint import graph, lint_course, longest_paths
from tutor.curriculum.loader import load_course
from tutor.resources import content_dir


def test_the_shipped_course_is_whole() -> None:
    found = dict(lint_course())
    assert {"graph", "request", "tokens", "forward", "kv-cache", "kv-math", "paged"} <= found.keys()
    assert not any(found.values()), found


def test_networkx_agrees_on_every_stage() -> None:
    course = load_course()
    assert longest_paths(graph(course)) == {lesson.id: course.stage(lesson.id) for lesson in course}


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("lesson.md", "## Recap", "## Nothing", "Recap"),
        ("lab.toml", 'predict = ["', 'predict = ["nowhere", "', "nowhere"),
        ("quiz.toml", 'answer = "', 'answer = "nonsense + ', "nonsense"),
    ],
)
def test_damage_is_noticed(tmp_path: Path, file: str, old: str, new: str, sentence: str) -> None:
    folder = tmp_path / "content"
    shutil.copytree(content_dir(), folder)
    path = folder / "08-kv-math" / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    problems = dict(lint_course(folder))["kv-math"]
    assert problems and any(sentence in problem for problem in problems)
