"""What start, check, hint, solution and reset share: exercise, workspace and journal, with their errors."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tutor.cli.course_view import find_lesson
from tutor.grading.errors import GradingError, UnknownExercise
from tutor.grading.exercise import SUFFIXES, Exercise, exercise_ids, find_exercise
from tutor.grading.workspace import Workspace
from tutor.journal.progress import ExerciseProgress, fold
from tutor.journal.store import Journal, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tutor.journal.events import AnyEvent

FAILED, USAGE, COULD_NOT_RUN = 1, 2, 3


def stop(sentence: str, code: int) -> NoReturn:
    """End the command: the sentence goes to stderr."""
    click.echo(sentence, err=True)
    raise click.exceptions.Exit(code)


@contextmanager
def explained() -> Iterator[None]:
    """Grading errors end the command with their sentence: 2 for a wrong id, 3 for the rest."""
    try:
        yield
    except UnknownExercise as error:
        stop(str(error), USAGE)
    except GradingError as error:
        stop(str(error), COULD_NOT_RUN)


def exercise(name: str) -> Exercise:
    """The exercise of this id, or of the lesson with this alias or title; else a sentence and exit code."""
    with explained():
        try:
            return find_exercise(name)
        except UnknownExercise:
            lesson = find_lesson(name)
            if lesson is None:
                raise
            if lesson.written:
                return find_exercise(lesson.id)
    stop(f"The lesson {lesson.id} is not written yet. `tutor list` shows which ones are.", COULD_NOT_RUN)


def workspace(ctx: click.Context) -> Workspace:
    """The folder of --workspace, TUTOR_WORKSPACE, or ~/inference-tutor."""
    return Workspace(ctx.obj["workspace"])


def started(ctx: click.Context) -> list[tuple[Exercise, Path]]:
    """Exercises that have a file in the workspace, the one changed last first."""
    with explained():
        folder = workspace(ctx)
        known = [find_exercise(ident) for ident in exercise_ids()]
        latest = [folder.latest(item) for item in known]
    found = [(item, folder.path(item)) for item in latest if folder.path(item).is_file()]
    return sorted(found, key=lambda pair: pair[1].stat().st_mtime, reverse=True)


def language_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--language`, of commands that are about one file of an exercise."""
    said = "For exercises that are there in several (default: that of the file saved last, else Python)."
    return click.option("--language", type=click.Choice(sorted(SUFFIXES)), help=said)(command)


def chosen_language(ctx: click.Context, item: Exercise, language: str | None) -> Exercise:
    """The exercise in this language, or in that of the file saved last."""
    with explained():
        return item.in_language(language) if language else workspace(ctx).latest(item)


def record(event: AnyEvent) -> None:
    """Append to the journal. A journal that cannot be written costs a warning, never the command."""
    try:
        Journal().append(event)
    except JournalError as error:
        click.echo(f"Not recorded: {error}", err=True)


def done_so_far(ident: str) -> ExerciseProgress:
    """Attempts, hints and passes of one exercise; nothing done when the journal cannot be read."""
    try:
        return fold(Journal().read().events).exercise(ident)
    except JournalError as error:
        click.echo(str(error), err=True)
        return ExerciseProgress(ident)


def complete_exercise(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Exercise ids for the shell's Tab key."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(ident) for ident in exercise_ids() if ident.startswith(incomplete)]
