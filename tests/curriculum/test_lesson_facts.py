"""What a written lesson says about itself: how long it is to read, and how hard it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutor.curriculum.errors import CourseError
from tutor.curriculum.loader import load_course, read_lesson
from tutor.curriculum.render import WORDS_PER_MINUTE, LessonText
from tutor.resources import content_dir
from tutor.ui import describe

COURSE = load_course(content_dir())
WRITTEN = [lesson for lesson in COURSE if lesson.written]
LESSON = """id = "one"
title = "One"
line = "A line."
objectives = ["Do."]
minutes = 20
difficulty = {}
"""


@pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.id)
def test_a_written_lesson_says_how_hard_it_is(lesson: object) -> None:
    assert 1 <= COURSE[lesson.id].difficulty <= 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.id)
def test_reading_is_a_part_of_the_lessons_time(lesson: object) -> None:
    one = COURSE[lesson.id]  # type: ignore[attr-defined]
    assert 3 <= read_lesson(one).reading_minutes < one.minutes


def test_reading_time_is_rounded_up() -> None:
    def minutes(words: int) -> int:
        return LessonText("word " * words, (), "", "").reading_minutes

    assert (minutes(1), minutes(WORDS_PER_MINUTE), minutes(WORDS_PER_MINUTE + 1)) == (1, 1, 2)


@pytest.mark.parametrize("value", [-1, 6])
def test_a_difficulty_that_is_none_is_refused(value: int, tmp_path: Path) -> None:
    folder = tmp_path / "01-one"
    folder.mkdir()
    (folder / "lesson.toml").write_text(LESSON.format(value))
    with pytest.raises(CourseError, match=f"difficulty goes from 1 to 5, got {value}"):
        load_course(tmp_path)


def test_the_map_shows_it() -> None:
    from tutor.curriculum.mastery import lesson_states
    from tutor.journal.progress import fold

    progress = fold(())
    lesson = COURSE["prefill-decode"]
    shown = describe.panel(lesson, lesson_states(COURSE, progress), progress, COURSE)
    assert f"difficulty {lesson.difficulty} of 5" in shown.plain
