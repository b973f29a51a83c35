"""The form of every written lesson: its length, its diagrams, its sources, its recap and its questions."""

from __future__ import annotations

import re

import pytest

from tutor.curriculum.loader import load_course, read_lesson, read_quiz
from tutor.curriculum.schema import ChoiceSpec, Lesson, NumberSpec
from tutor.resources import content_dir

WRITTEN = [lesson for lesson in load_course(content_dir()) if lesson.written]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SOURCES = re.compile(r"^## Sources$.*?(?=^## )", re.DOTALL | re.MULTILINE)
COLUMNS = 76  # an 80-column terminal, less the margin of the page
lessons = pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.id)


def text_of(lesson: Lesson) -> str:
    return read_lesson(lesson).markdown


@lessons
def test_the_prose_has_600_to_1200_words(lesson: Lesson) -> None:
    """Code, diagrams and sources do not count."""
    prose = FENCE.sub("", SOURCES.sub("", text_of(lesson)))
    assert 600 <= sum(any(map(str.isalnum, word)) for word in prose.split()) <= 1200


@lessons
def test_a_block_says_what_it_is_and_fits_the_page(lesson: Lesson) -> None:
    """Where a block names no language, the page guesses one and paints a diagram's lines as errors."""
    for language, block in FENCE.findall(text_of(lesson)):
        assert language, block
        assert max(map(len, block.splitlines())) <= COLUMNS, block


@lessons
def test_it_names_its_sources_and_ends_with_five_lines(lesson: Lesson) -> None:
    assert SOURCES.search(text_of(lesson))
    lines = [line for line in read_lesson(lesson).recap.splitlines() if line.startswith("- ")]
    assert len(lines) == 5


@lessons
def test_most_questions_are_numbers_and_each_wrong_choice_is_explained(lesson: Lesson) -> None:
    specs = [question.spec for question in read_quiz(lesson)]
    numeric = [spec for spec in specs if isinstance(spec, NumberSpec)]
    fresh = [spec for spec in numeric if spec.params]  # drawn anew on each try
    assert len(specs) >= 3 and 2 * len(numeric) > len(specs) and len(fresh) >= 2
    assert all(spec.wrong and all(each.why for each in spec.wrong) for spec in numeric)
    assert all(choice.why for spec in specs if isinstance(spec, ChoiceSpec) for choice in spec.choices)
