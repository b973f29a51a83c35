"""`tutor author lint` and `tutor author mutate`: prove that an exercise grades what it should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from tutor.cli.exercise_view import FAILED, complete_exercise, explained
from tutor.grading.exercise import exercise_ids, find_exercise


@click.group("author")
def command() -> None:
    """Tools for people who write lessons and exercises."""


@command.command("lint")
@click.argument("idents", metavar="[ID…]", nargs=-1, shell_complete=complete_exercise)
@click.option("--exercises", type=click.Path(path_type=Path), help="Another folder of exercises.")
@click.pass_context
def lint(ctx: click.Context, idents: tuple[str, ...], exercises: Path | None) -> None:
    """Prove that lessons and exercises are whole.

    Lessons (without an ID): the graph, every text rendered, every question asked with fresh numbers.
    Exercises: the starter fails, the solution passes, every mutant fails as it says.
    """
    from tutor.grading.lint import lint_exercises

    def report(ident: str, problems: tuple[str, ...]) -> None:
        click.echo(f"{ident}: {'ok' if not problems else ''}")
        for problem in problems:
            click.echo(f"  {problem}")

    with explained():
        lessons_clean = bool(idents) or _lint_lessons(report)
        chosen = idents or exercise_ids(exercises)
        items = [find_exercise(ident, exercises) for ident in chosen]
        clean = lint_exercises(items, ctx.obj["model"], report)
    if not (clean and lessons_clean):
        raise click.exceptions.Exit(FAILED)


def _lint_lessons(report: Callable[[str, tuple[str, ...]], None]) -> bool:
    from tutor.curriculum.lint import lint_course

    clean = True
    for what, problems in lint_course():
        report(f"lesson {what}", problems)
        clean = clean and not problems
    return clean


@command.command("mutate")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@click.option("--exercises", type=click.Path(path_type=Path), help="Another folder of exercises.")
@click.option("--limit", type=click.IntRange(min=1), help="Try at most so many, spread over the file.")
@click.option("--call-seconds", type=float, default=2.0, show_default=True, help="Limit of one call.")
@click.pass_context
def mutate(
    ctx: click.Context, ident: str, exercises: Path | None, limit: int | None, call_seconds: float
) -> None:
    """Change solution.py in small ways and report which changes the checks do not notice."""
    from tutor.grading.mutate import Outcome, mutate_exercise

    def report(outcome: Outcome) -> None:
        if outcome.survived:
            click.echo(f"survived  {outcome.mutation.describe()}")

    with explained():
        item = find_exercise(ident, exercises)
        outcomes = mutate_exercise(item, ctx.obj["model"], limit, call_seconds, report)
    survivors = sum(outcome.survived for outcome in outcomes)
    click.echo(f"{len(outcomes)} mutations, {len(outcomes) - survivors} noticed, {survivors} survived.")
    if survivors:
        raise click.exceptions.Exit(FAILED)
