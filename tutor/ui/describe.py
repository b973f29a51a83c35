"""Sentences about a lesson for the map's panel, its narrow strip and the screen of an unwritten lesson."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from textual.content import Content

from tutor.curriculum.dag import Course
from tutor.curriculum.mastery import LessonState
from tutor.curriculum.schema import Lesson
from tutor.journal.progress import Progress
from tutor.ui.theme import state_mark
from tutor.ui.widgets.course_map import Card

PANEL_WIDTH = 36

STATE_COLORS = {
    "done": "$success",
    "ready": "$primary",
    "in_progress": "$primary",
    "locked": "$secondary",
    "unwritten": "$secondary",
}


def state_key(state: LessonState) -> str:
    """The key of `theme.STATES` for a lesson."""
    return "unwritten" if not state.written and state.status != "done" else state.status


def cards(course: Course, states: dict[str, LessonState]) -> tuple[Card, ...]:
    return tuple(
        Card(
            id=lesson.id,
            title=lesson.title,
            stage=lesson.stage,
            needs=lesson.needs,
            unlocks=lesson.unlocks,
            state=state_key(states[lesson.id]),
        )
        for lesson in course
    )


def first_choice(course: Course, states: dict[str, LessonState], progress: Progress) -> str:
    """Where the map starts: the lesson last worked on if it is not done, else the first open one."""
    going = [id for id, state in states.items() if state.status == "in_progress"]
    if going:
        return max(going, key=lambda id: progress.lesson(id).last_seen)
    ready = [id for id, state in states.items() if state.status == "ready"]
    return (ready or list(states))[0]


def left_to_do(lesson: Lesson, state: LessonState, progress: Progress, course: Course) -> str:
    """One sentence: what the learner can do about this lesson now."""
    if state.status == "done":
        return "Done. You can read it again, run its lab or try the exercise anew."
    if not state.written:
        return "Not written yet. It does not block the lessons behind it."
    if state.missing:
        titles = ", ".join(course[id].title for id in state.missing)
        return f"First do: {titles}. Or press T and pass its exercise."
    seen = progress.lesson(lesson.id)
    if not seen.last_seen:
        return "Start reading: press Enter."
    exercise = progress.exercise(lesson.id)
    parts = []
    if not seen.predictions:
        parts.append("answer the questions")
    if not seen.lab_runs:
        parts.append("run the lab")
    parts.append("fix the exercise" if exercise.attempts else "solve the exercise")
    return f"Left to do: {', '.join(parts)}."


def panel(lesson: Lesson, states: dict[str, LessonState], progress: Progress, course: Course) -> Content:
    """The whole right-hand panel of the map."""
    state = states[lesson.id]
    mark, word = state_mark(state.status, state.written)
    color = STATE_COLORS[state_key(state)]
    lines: list[Content] = [
        Content.styled(lesson.title, "bold"),
        Content.assemble(
            (f"{mark} {word}", color), (f"   stage {lesson.stage} · {lesson.minutes} min", "$secondary")
        ),
        *_difficulty(lesson),
        Content(""),
        Content(lesson.line),
        Content(""),
        Content(left_to_do(lesson, state, progress, course)).stylize("$accent"),
        Content(""),
        Content.styled("YOU WILL", "bold $secondary"),
        *bullets(lesson.objectives),
    ]
    for heading, ids in (("NEEDS", lesson.needs), ("UNLOCKS", lesson.unlocks)):
        lines += [Content(""), Content.styled(heading, "bold $secondary")]
        lines += [_neighbour(course[id], states[id]) for id in ids] or [Content("nothing")]
    return Content("\n").join(lines)


def _difficulty(lesson: Lesson) -> list[Content]:
    """A line, if the lesson says how hard it is."""
    return [Content.styled(f"difficulty {lesson.difficulty} of 5", "$secondary")] if lesson.difficulty else []


def bullets(texts: Iterable[str], width: int = PANEL_WIDTH) -> list[Content]:
    """Texts as list items whose further lines are indented."""
    return [Content(textwrap.fill(t, width, initial_indent="• ", subsequent_indent="  ")) for t in texts]


def _neighbour(lesson: Lesson, state: LessonState) -> Content:
    mark, _ = state_mark(state.status, state.written)
    return Content.assemble((f"{mark} ", STATE_COLORS[state_key(state)]), lesson.title)


def strip(lesson: Lesson, states: dict[str, LessonState], progress: Progress, course: Course) -> Content:
    """Three lines for terminals without room for the panel."""
    state = states[lesson.id]
    mark, word = state_mark(state.status, state.written)
    needs = ", ".join(lesson.needs) or "nothing"
    unlocks = ", ".join(lesson.unlocks) or "nothing"
    return Content("\n").join(
        [
            Content.assemble(
                (lesson.title, "bold"),
                (f"  {mark} {word}", STATE_COLORS[state_key(state)]),
                (f"  {lesson.minutes} min · needs {needs} · unlocks {unlocks}", "$secondary"),
            ),
            Content(lesson.line),
            Content(left_to_do(lesson, state, progress, course)).stylize("$accent"),
        ]
    )
