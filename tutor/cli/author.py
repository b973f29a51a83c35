"""`tutor author new`, `lint` and `mutate`: make a lesson, prove that it is whole and its grader sound."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tutor.cli.exercise_view import COULD_NOT_RUN, FAILED, complete_exercise, explained, stop
from tutor.curriculum.errors import CourseError
from tutor.curriculum.packs import Pack, add_packs, folder_pack
from tutor.grading.exercise import Exercise, exercise_ids, find_exercise

if TYPE_CHECKING:
    from tutor.grading.mutate import Outcome

_PACK_HELP = "The lesson pack in this folder, and nothing else."
_FOLDER = click.Path(path_type=Path)


@click.group("author")
def command() -> None:
    """Tools for people who write lessons and exercises."""


@contextmanager
def _told() -> Iterator[None]:
    """Errors of course and exercises end the command with their sentence."""
    try:
        with explained():
            yield
    except CourseError as error:
        stop(str(error), COULD_NOT_RUN)


def _use(folder: Path | None) -> Pack | None:
    """Make the pack in a folder part of the course."""
    if folder is None:
        return None
    add_packs([folder])
    return folder_pack(folder)


# --- new ----------------------------------------------------------------------------------------


@command.command("new")
@click.argument("ident", metavar="ID")
@click.option("--pack", type=_FOLDER, default=".", help="Where; it becomes a pack (default: this folder).")
@click.option("--title", help="The lesson's title (default: made from ID).")
@click.option("--needs", multiple=True, metavar="ID", help="A lesson to do first (may be repeated).")
def new(ident: str, pack: Path, title: str | None, needs: tuple[str, ...]) -> None:
    """Make a lesson with an exercise to write over: content/NN-ID/ and exercises/ID/ in a folder.

    The folder is a lesson pack, or a checkout of the tutor. What you get is whole: lint and mutate pass.
    """
    from tutor.curriculum.loader import load_course
    from tutor.grading.skeleton import make_skeleton

    with _told():
        if (pack / "content").is_dir() or (pack / "exercises").is_dir():
            _use(pack)
        title = title or ident.replace("-", " ").capitalize()
        lesson, exercise = make_skeleton(pack, ident, title, needs, load_course())
    click.echo(f"lesson    {lesson}\nexercise  {exercise}\n\nWrite over what is in them, then:")
    for line in (f"tutor author lint --pack {pack} {ident}", f"tutor author mutate --pack {pack} {ident}"):
        click.echo(f"  {line}")
    click.echo(f"  tutor --pack {pack}        to see it in the course")


# --- lint ---------------------------------------------------------------------------------------


@command.command("lint")
@click.argument("idents", metavar="[ID…]", nargs=-1, shell_complete=complete_exercise)
@click.option("--pack", type=_FOLDER, help=_PACK_HELP)
@click.option("--exercises", type=_FOLDER, help="Another folder of exercises, without lessons.")
@click.pass_context
def lint(ctx: click.Context, idents: tuple[str, ...], pack: Path | None, exercises: Path | None) -> None:
    """Prove that lessons and exercises are whole.

    Lessons: the graph, every text rendered, every question asked with fresh numbers, every lab's knobs.
    Exercises: the starter fails, the solution passes, every mutant fails as it says.
    With an ID: only the exercise of this id, and its lesson if it is in the pack.
    """
    from tutor.grading.lint import lint_exercises
    from tutor.grading.node import node_problem

    with _told():
        found = _use(pack)
        root = found.exercises if found is not None else exercises
        chosen = idents or exercise_ids(root)
        items = [find_exercise(ident, root) for ident in chosen]
        whole = (not idents or found is not None) and exercises is None
        lessons_clean = not whole or _lint_lessons(found, idents)
        also = _place_problems() if whole else lambda item: ()
        clean = lint_exercises(items, ctx.obj["model"], _print_problems, also)
        if any(item.variants for item in items) and (problem := node_problem()):
            click.echo(f"Skipped, not run: the TypeScript variants. {problem}", err=True)
    if not (clean and lessons_clean):
        raise click.exceptions.Exit(FAILED)


def _print_problems(what: str, problems: tuple[str, ...]) -> None:
    click.echo(f"{what}: {'ok' if not problems else ''}".rstrip())
    for problem in problems:
        click.echo(f"  {problem}")


def _lint_lessons(pack: Pack | None, idents: tuple[str, ...]) -> bool:
    from tutor.curriculum.lint import lint_course
    from tutor.labs.lint import lab_problems

    clean = True
    for what, problems in lint_course(only=pack.content if pack else None, also=lab_problems):
        if not idents or what in (*idents, "graph"):
            _print_problems(f"lesson {what}", problems)
            clean = clean and not problems
    return clean


def _place_problems() -> Callable[[Exercise], tuple[str, ...]]:
    """Checks an exercise against the whole course and all other exercises."""
    from tutor.curriculum.loader import load_course
    from tutor.grading.lint import place_problems

    course, everything = load_course(), [find_exercise(ident) for ident in exercise_ids()]
    return lambda item: place_problems(item, course, everything)


# --- mutate -------------------------------------------------------------------------------------


@command.command("mutate")
@click.argument("idents", metavar="[ID…]", nargs=-1, shell_complete=complete_exercise)
@click.option("--pack", type=_FOLDER, help="The lesson pack with the exercise.")
@click.option("--exercises", type=_FOLDER, help="Another folder of exercises.")
@click.option("--limit", type=click.IntRange(min=1), help="Try at most so many, spread over the file.")
@click.option("--start", type=click.IntRange(min=1), default=1, help="Begin with this one (default 1).")
@click.option("--call-seconds", type=float, default=2.0, show_default=True, help="Limit of one call.")
@click.option("--seconds", type=float, default=240.0, show_default=True, help="Begin no mutation after it.")
@click.pass_context
def mutate(
    ctx: click.Context,
    idents: tuple[str, ...],
    pack: Path | None,
    exercises: Path | None,
    limit: int | None,
    start: int,
    call_seconds: float,
    seconds: float,
) -> None:
    """Change solution.py in small ways and report which changes the checks do not notice.

    Without an ID: every exercise. A change that cannot be noticed goes into equivalent.toml beside it, with
    the reason: docs/exercises.md.
    """
    with _told():
        found = _use(pack)
        root = found.exercises if found is not None else exercises
        items = [find_exercise(ident, root) for ident in idents or exercise_ids(root)]
        how = _How(ctx.obj["model"], limit, start, call_seconds, seconds, named=len(items) > 1)
        codes = [_mutate_one(item, how) for item in items]
    if any(codes):
        raise click.exceptions.Exit(FAILED if FAILED in codes else COULD_NOT_RUN)


class _How(NamedTuple):
    """The options of `mutate`; `named`: several exercises run, so each line says which one it is about."""

    model: str | None
    limit: int | None
    start: int
    call_seconds: float
    seconds: float
    named: bool


def _mutate_one(item: Exercise, how: _How) -> int:
    """Run, print and return the exit code."""
    from tutor.grading.mutate import choose, mutate_exercise, mutations_of

    chosen = choose(mutations_of(item), how.start, how.limit)
    report = mutate_exercise(
        item,
        how.model,
        chosen,
        MutationPrinter(len(chosen)),
        call_seconds=how.call_seconds,
        run_seconds=how.seconds,
    )
    tried, survived = len(report.outcomes), len(report.outcomes) - report.noticed
    prefix = f"{item.id}: " if how.named else ""
    click.echo(f"{prefix}{tried} mutations, {report.noticed} noticed, {survived} survived.")
    if survived and not report.wrong:
        click.echo("Each survivor is equivalent, for the reason that equivalent.toml gives.")
    if report.left:
        way_on = "give it more --seconds" if how.limit else f"go on with --start {how.start + tried}"
        click.echo(f"The time was up: {report.left} were not tried; {way_on}.", err=True)
    return FAILED if report.wrong else COULD_NOT_RUN if report.left else 0


class MutationPrinter:
    """Prints what survives, with what the author can do about it, and on a terminal how far the run is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._live = sys.stderr.isatty()

    def __call__(self, done: int, outcome: Outcome) -> None:
        mutation = outcome.mutation
        if self._live:
            click.echo("\r\033[K", nl=False, err=True)
        if outcome.wrong:
            click.echo(f"{'survived' if outcome.survived else 'noticed':<9} {mutation.describe()}")
            click.echo(f"          {outcome.wrong}")
            if outcome.survived:
                click.echo(f"          function = {mutation.function!r}")
                click.echo(f"          was = {mutation.was!r}\n          now = {mutation.now!r}")
        elif outcome.survived:
            click.echo(f"explained {mutation.describe()}\n          {outcome.why}")
        if self._live and done < self._total:
            click.echo(f"{done} of {self._total}, line {mutation.line} ", nl=False, err=True)
