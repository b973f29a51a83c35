"""What a lesson's own sections say: its lab, its exercise, and what comes after it."""

from __future__ import annotations

from textual.content import Content

from tutor.curriculum.dag import Course
from tutor.curriculum.mastery import LessonState
from tutor.curriculum.schema import LabSpec, Lesson
from tutor.journal.progress import ExerciseProgress
from tutor.ui.describe import bullets
from tutor.ui.inline import inline
from tutor.ui.theme import state_mark


def unlock_text(lesson: Lesson, course: Course, states: dict[str, LessonState]) -> str:
    """Markdown: the lessons that this one unlocks."""
    if not lesson.unlocks:
        return "This lesson is the end of its path."
    lines = ["## What this unlocks", ""]
    for id in lesson.unlocks:
        mark, word = state_mark(states[id].status, states[id].written)
        lines.append(f"- {mark} **{course[id].title}** ({word}): {course[id].line}")
    if states[lesson.id].status != "done":
        lines += ["", "The lesson is done when its exercise has passed."]
    return "\n".join(lines)


def about_lab(lab: LabSpec, runs: int, *, asks_first: bool) -> Content:
    """What the lab shows and what to watch; whether it asks for a prediction before it runs."""
    lines = [
        Content.styled(lab.title, "bold"),
        inline(lab.phenomenon),
        Content(""),
        Content.styled("WHAT TO WATCH", "bold $secondary"),
        *bullets(lab.watch, 70),
        Content(""),
    ]
    if asks_first:
        lines.append(Content("First you commit to a prediction; then the real engine runs."))
    if runs:
        lines.append(Content.styled(f"✓ You have run it {runs} time{'s' if runs > 1 else ''}.", "$success"))
    lines += [Content(""), Content.assemble(("Enter", "bold $accent"), " opens the lab.")]
    return Content("\n").join(lines)


def about_exercise(lesson: Lesson, known: ExerciseProgress) -> Content:
    """What there is to build, and how far the learner is with it."""
    lines = [
        Content.styled("Now build it", "bold"),
        Content("The exercise is a Python file in your workspace, graded against the real model."),
        Content(""),
    ]
    if known.passed:
        lines.append(Content.styled("✓ Passed. You can change it and check again.", "$success"))
    elif known.attempts:
        failed = "; ".join(known.last_failed_checks) or "the file as a whole"
        times = "once" if known.attempts == 1 else f"{known.attempts} times"
        lines.append(Content(f"Checked {times} so far. Open: {failed}."))
    else:
        lines.append(Content("Not tried yet."))
    lines += _other_languages(lesson)
    lines += [Content(""), Content.assemble(("Enter", "bold $accent"), " opens the exercise.")]
    return Content("\n").join(lines)


def _other_languages(lesson: Lesson) -> list[Content]:
    """How the exercise is begun in a language that the exercise screen has no editor for."""
    from tutor.grading.errors import GradingError
    from tutor.grading.exercise import LANGUAGE_NAMES, PYTHON, find_exercise

    try:
        languages = find_exercise(lesson.id).languages
    except GradingError:
        return []  # the exercise screen says what is wrong with it
    begin = f"tutor start {lesson.id} --language"
    others = [each for each in languages if each != PYTHON]
    return [Content(f"In {LANGUAGE_NAMES[each]}: {begin} {each}") for each in others]
