"""The lessons that ship: all there, in the right stages, loaded fast; whatever is written can be opened."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tutor.curriculum.loader import load_course, read_lab, read_lesson, read_quiz
from tutor.curriculum.quiz import instantiate

STAGES = {
    "request": 1,
    "tokens": 1,
    "forward": 1,
    "attention": 2,
    "sampling": 2,
    "run-local": 3,
    "kv-cache": 3,
    "kv-math": 4,
    "prefill-decode": 4,
    "gqa": 5,
    "metrics": 5,
    "roofline": 5,
    "specdec": 6,
    "flash": 6,
    "benchmark": 6,
    "streaming": 6,
    "quant": 6,
    "parallelism": 6,
    "batching": 6,
    "paged": 7,
    "disagg": 7,
    "cost": 7,
    "scheduler": 7,
    "rag-prefill": 7,
    "kv-compress": 7,
    "crossover": 7,
    "prefix": 8,
    "allocator": 8,
    "spec-prod": 8,
    "engine": 9,
    "tiered": 9,
}
COURSE = load_course()
WRITTEN = [lesson.id for lesson in COURSE if lesson.written]


def test_every_lesson_is_in_its_stage() -> None:
    assert {lesson.id: lesson.stage for lesson in COURSE} == STAGES


def test_numbers_run_from_1_and_the_order_is_the_folders() -> None:
    assert [lesson.number for lesson in COURSE] == list(range(1, 32))
    assert COURSE.order == tuple(STAGES)


def test_the_old_title_still_finds_the_lesson() -> None:
    assert COURSE.find("run a model on your mac").id == "run-local"


def test_every_lesson_is_described() -> None:
    for lesson in COURSE:
        assert 3 <= len(lesson.objectives) <= 4, lesson.id
        assert all(objective.endswith(".") for objective in lesson.objectives), lesson.id
        assert 15 <= lesson.minutes <= 60, lesson.id
        assert lesson.line.endswith("."), lesson.id


def test_the_course_loads_in_15_ms() -> None:
    times = []
    for _ in range(20):
        start = time.perf_counter()
        load_course()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.015


def test_opening_the_course_imports_nothing_slow() -> None:
    code = (
        "import sys; from tutor.curriculum.loader import load_course;"
        "from tutor.curriculum.mastery import lesson_states; from tutor.journal.progress import fold;"
        "lesson_states(load_course(), fold(()));"
        "slow = ('jinja2', 'networkx', 'filelock', 'numpy', 'rich', 'textual');"
        "print([name for name in slow if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("id", WRITTEN)
def test_a_written_lesson_can_be_opened(id: str) -> None:
    lesson = COURSE[id]
    text = read_lesson(lesson)
    assert "{{" not in text.markdown
    assert "{%" not in text.markdown
    assert text.sections[-1].title == "Recap"
    read_lab(lesson)


@pytest.mark.parametrize("id", WRITTEN)
def test_every_question_works_with_any_numbers(id: str) -> None:
    """The expected answer is scored as right, and every other choice as wrong, whatever was drawn."""
    for question in read_quiz(COURSE[id]):
        for seed in range(60):
            asked = instantiate(question, random.Random(seed))
            assert asked.score(asked.expected).correct, (question.id, seed)
            for index in range(len(asked.choices)):
                assert asked.score(index).correct == (index == asked.expected), (question.id, seed)
            if not asked.choices:
                off = asked.expected * (1 + 2 * asked.tolerance) + 1
                assert not asked.score(off).correct, (question.id, seed)
