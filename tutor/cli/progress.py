"""`tutor progress`: what the learner has done so far, from the journal."""

from __future__ import annotations

import textwrap
from typing import Any

import click
import msgspec

from tutor.cli.course_view import (
    Standing,
    output_width,
    print_json,
    standing,
    state_words,
    use_ascii,
    warn,
)
from tutor.curriculum.mastery import done_words
from tutor.journal.progress import LessonProgress


@click.command("progress")
@click.option("--json", "as_json", is_flag=True, help="Print the progress as JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show what you have done: lessons, predictions, labs, exercises and hints."""
    now = standing()
    warn(now.warnings)
    if as_json:
        print_json(_as_dict(now))
        return
    _print(now, use_ascii(ctx))


def _as_dict(now: Standing) -> dict[str, Any]:
    lessons = {}
    for id in _touched(now):
        seen = now.progress.lesson(id)
        status = now.states[id].status if id in now.states else None  # a lesson that has left the course
        lessons[id] = {
            "status": status,
            "first_opened": seen.first_opened or None,
            "last_seen": seen.last_seen or None,
            "times_opened": seen.times_opened,
            "sections": seen.sections,
            "predictions": len(seen.predictions),
            "predictions_right": _right(seen),
            "lab_runs": seen.lab_runs,
            "done_at": seen.done_at or None,
        }
    exercises = {id: msgspec.to_builtins(done) for id, done in now.progress.exercises.items()}
    done = sum(state.status == "done" for state in now.states.values())
    return {
        "lessons_done": done,
        "lessons": lessons,
        "exercises": exercises,
        "events": now.progress.num_events,
    }


def _print(now: Standing, ascii_only: bool) -> None:
    width = output_width()
    click.echo(f"{done_words(now.states)}.")
    touched = [id for id in _touched(now) if id in now.states]
    if not touched:
        click.echo("Nothing begun yet. `tutor list` shows the lessons, `tutor lesson ID` opens one.")
        return
    ids = max(len(id) for id in touched)
    click.echo()
    for id in touched:
        head = f"{id:<{ids}}  {state_words(now.states[id], ascii_only):<13}  "
        done_here = ", ".join(_parts(now, id))
        click.echo(
            textwrap.fill(
                done_here,
                width,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )


def _parts(now: Standing, id: str) -> list[str]:
    """What was done in a lesson, in the order of the lesson's tabs; only what there is."""
    seen = now.progress.lesson(id)
    exercise = now.progress.exercise(id)
    parts = [f"opened {_times(seen.times_opened)}"] if seen.times_opened else []
    if seen.predictions:
        parts.append(f"{_right(seen)} of {len(seen.predictions)} predictions right")
    if seen.lab_runs:
        parts.append(f"{_count(seen.lab_runs, 'lab run')}")
    if exercise.passed:
        parts.append(f"exercise passed at attempt {exercise.attempts_until_pass}")
    elif exercise.attempts:
        failed = f" (still failing: {'; '.join(exercise.last_failed_checks)})"
        parts.append(_count(exercise.attempts, "attempt") + (failed if exercise.last_failed_checks else ""))
    if exercise.hints:
        parts.append(_count(exercise.hints, "hint"))
    if exercise.solution_shown:
        parts.append("solution shown")
    return parts


def _touched(now: Standing) -> list[str]:
    """Lessons with anything in the journal: in course order, then those the course no longer has."""
    known = set(now.progress.lessons) | set(now.progress.exercises)
    in_course = [id for id in now.course.order if id in known]
    return in_course + sorted(id for id in now.progress.lessons if id not in now.course)


def _right(seen: LessonProgress) -> int:
    return sum(prediction.correct for prediction in seen.predictions)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
