"""Whether the course is whole: the graph (by networkx), every text rendered, every question asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import networkx as nx

from tutor.curriculum.dag import Course
from tutor.curriculum.errors import CourseError
from tutor.curriculum.loader import load_course, read_lab, read_lesson, read_quiz
from tutor.curriculum.quiz import instantiate
from tutor.curriculum.schema import Lesson

DRAWS = 20  # fresh numbers that each question is tried with


def graph(course: Course) -> nx.DiGraph:
    """The course as a networkx graph; an edge leads from a need to the lesson that needs it."""
    made = nx.DiGraph()
    made.add_nodes_from(lesson.id for lesson in course)
    made.add_edges_from((need, lesson.id) for lesson in course for need in lesson.needs)
    return made


def longest_paths(lessons: nx.DiGraph) -> dict[str, int]:
    """Stage of every lesson: 1 + the longest path that leads to it from a lesson without needs."""
    stage = {}
    for generation, ids in enumerate(nx.topological_generations(lessons), start=1):
        stage.update(dict.fromkeys(ids, generation))
    return stage


def lint_course(
    folder: Path | None = None,
    *,
    only: Path | None = None,
    also: Callable[[Lesson], tuple[str, ...]] = lambda lesson: (),
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(what was looked at, its problems). Raises CourseError when the course cannot be read at all.

    only: look at the lessons of this content folder alone, in the graph of all. also: further problems of a
    written lesson.
    """
    course = load_course(folder)
    lessons = graph(course)
    expected = longest_paths(lessons)
    yield (
        "graph",
        tuple(
            f"{lesson.id} is shown in stage {course.stage(lesson.id)}, its longest path gives "
            f"{expected[lesson.id]}."
            for lesson in course
            if course.stage(lesson.id) != expected[lesson.id]
        ),
    )
    for lesson in course:
        if lesson.written and only in (None, lesson.folder.parent):
            yield lesson.id, (*_problems(lesson), *also(lesson))


def _problems(lesson: Lesson) -> Iterator[str]:
    try:
        text = read_lesson(lesson)
        if not text.recap.strip():
            yield "lesson.md has no Recap."
        questions = read_quiz(lesson)
        rng = random.Random(1)
        for question in questions:
            for _ in range(DRAWS):
                instantiate(question, rng)
        lab = read_lab(lesson)
    except CourseError as error:
        yield str(error)
        return
    known = {question.id for question in questions}
    missing = [name for name in (lab.predict if lab else ()) if name not in known]
    if missing:
        yield f"lab.toml asks questions that quiz.toml does not have: {', '.join(missing)}."
