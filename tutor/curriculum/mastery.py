"""Where the learner stands in the course: done, in progress, ready or locked, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tutor.curriculum.dag import Course
from tutor.curriculum.schema import Lesson
from tutor.journal.progress import LessonProgress, Progress


class LessonState(msgspec.Struct, frozen=True):
    """`status`: locked, ready, in_progress or done.

    `missing` are lessons to do first, in course order. `open_needs` are direct needs that are not
    written yet and therefore do not block. A lesson that is not written itself is `locked` with
    `written` false: it cannot be opened, whatever is missing.
    """

    status: str
    missing: tuple[str, ...] = ()
    open_needs: tuple[str, ...] = ()
    written: bool = True


def lesson_states(course: Course, progress: Progress) -> dict[str, LessonState]:
    """The state of every lesson by id, in course order.

    A need counts as met when it is done, or when it is not written yet and its own needs are met.
    """
    done = progress.done
    met: set[str] = set()
    states: dict[str, LessonState] = {}
    for id in course.order:
        lesson = course[id]
        missing = _missing(course, lesson, met)
        if id in done or (not lesson.written and not missing):
            met.add(id)
        states[id] = _state(lesson, id in done, missing, progress.lesson(id), course, done)
    return states


def done_words(states: Mapping[str, LessonState]) -> str:
    """How far the learner is, and how far the course is where lessons are still to be written."""
    done = sum(state.status == "done" for state in states.values())
    written = sum(state.written for state in states.values())
    text = f"{done} of {len(states)} lessons done"
    return text if written == len(states) else f"{text}, {written} written so far"


def _state(
    lesson: Lesson,
    done: bool,
    missing: tuple[str, ...],
    seen: LessonProgress,
    course: Course,
    all_done: frozenset[str],
) -> LessonState:
    if done:
        status = "done"
    elif missing or not lesson.written:
        status = "locked"
    else:
        status = "in_progress" if seen.last_seen else "ready"
    open_needs = tuple(n for n in lesson.needs if not course[n].written and n not in all_done)
    return LessonState(status, missing, open_needs, lesson.written)


def _missing(course: Course, lesson: Lesson, met: set[str]) -> tuple[str, ...]:
    """Direct needs that are not met; an unwritten one is replaced by what blocks it, where that is new."""
    direct = {need for need in lesson.needs if need not in met and course[need].written}
    behind: set[str] = set()
    for need in lesson.needs:
        if need not in met and not course[need].written:
            behind.update(_missing(course, course[need], met))
    implied = {above for need in direct | behind for above in course.path_to(need)[:-1]}
    return tuple(id for id in course.order if id in direct or id in behind - implied)
