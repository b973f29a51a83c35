"""Sentences about a lesson for the map's panel, its narrow strip and the screen of an unwritten lesson."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from textual.content import Content

from tutor.curriculum.dag import Course
from tutor.curriculum.mastery import LessonState
from tutor.curriculum.schema import Lesson
from tutor.journal.progress import Progress
from tutor.ui.theme import state_mark
from tutor.ui.widgets.course_map import Card

PANEL_WIDTH = 36
STRIP_ROWS = 4

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


def left_to_do(
    lesson: Lesson, state: LessonState, progress: Progress, course: Course, most: int | None = None
) -> str:
    """One sentence: what the learner can do about this lesson now. It names `most` missing lessons."""
    if state.status == "done":
        return "Done. You can read it again, run its lab or try the exercise anew."
    if not state.written:
        return "Not written yet. It does not block the lessons behind it."
    if state.missing:
        titles = _some([course[id].title for id in state.missing], most or len(state.missing))
        return f"First do: {titles}. Or test out with T."
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


def strip(
    lesson: Lesson, states: dict[str, LessonState], progress: Progress, course: Course, width: int
) -> Content:
    """At most `STRIP_ROWS` rows of at most `width` cells, for terminals without room for the panel."""
    state = states[lesson.id]
    mark, word = state_mark(state.status, state.written)
    head = Content.assemble((lesson.title, "bold"), (f"  {mark} {word}", STATE_COLORS[state_key(state)]))
    facts = _facts(lesson, width - head.cell_length - 2)
    about = textwrap.wrap(lesson.line, width, max_lines=2, placeholder=" …", break_on_hyphens=False)
    room = STRIP_ROWS - 1 - len(about)
    left = _left_within(lesson, state, progress, course, room * width)
    todo = textwrap.wrap(left, width, max_lines=room, placeholder=" …", break_on_hyphens=False)
    return Content("\n").join(
        [
            Content.assemble(head, (f"  {facts}" if facts else "", "$secondary")),
            *(Content(row) for row in about),
            *(Content(row).stylize("$accent") for row in todo),
        ]
    )


def _facts(lesson: Lesson, room: int) -> str:
    """`30 min · needs a · unlocks b, c +2`. First names are left out from the end, then the time."""
    needs, unlocks = len(lesson.needs), len(lesson.unlocks)
    fewer = [(needs, n) for n in range(unlocks, 0, -1)] or [(needs, 0)]
    fewer += [(n, min(1, unlocks)) for n in range(needs - 1, 0, -1)]
    time = f"{lesson.minutes} min"
    ways = [(time, *most) for most in fewer] + [("", *most) for most in (*fewer, (1, 0), (0, 0))]
    for minutes, most_needs, most_unlocks in ways:
        needed, unlocked = (
            _named("needs", lesson.needs, most_needs),
            _named("unlocks", lesson.unlocks, most_unlocks),
        )
        facts = " · ".join(part for part in (minutes, needed, unlocked) if part)
        if len(facts) <= room:
            return facts
    return ""


def _named(what: str, names: Sequence[str], most: int) -> str:
    """`unlocks a, b +2`; nothing where there are no names."""
    return f"{what} {_some(names, most)}" if names else ""


def _some(names: Sequence[str], most: int) -> str:
    """The first names and how many more there are: `a, b +2`; only their number when `most` is 0."""
    if not most:
        return str(len(names))
    more = f" +{len(names) - most}" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _left_within(lesson: Lesson, state: LessonState, progress: Progress, course: Course, room: int) -> str:
    """`left_to_do` in `room` cells: it names as many of the missing lessons as fit."""
    sentence = ""
    for most in range(max(1, len(state.missing)), 0, -1):
        sentence = left_to_do(lesson, state, progress, course, most)
        if len(sentence) <= room:
            break
    return sentence
