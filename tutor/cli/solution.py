"""`tutor solution ID`: a solution, after a pass or on a confirmed request."""

from __future__ import annotations

import sys

import click

from tutor.cli.exercise_view import (
    USAGE,
    chosen_language,
    complete_exercise,
    done_so_far,
    exercise,
    language_option,
    record,
    stop,
)
from tutor.journal.events import SolutionShown


@click.command("solution")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@click.option("--yes", is_flag=True, help="Show it without asking, also before you have passed.")
@language_option
@click.pass_context
def command(ctx: click.Context, ident: str, yes: bool, language: str | None) -> None:
    """Show an exercise's solution (after a pass, or on request)."""
    item = chosen_language(ctx, exercise(ident), language)
    if not yes and not done_so_far(item.id).passed:
        question = f"You have not passed {item.id} yet. Show the solution?"
        if not sys.stdin.isatty():
            stop(f"{question} Add --yes to see it.", USAGE)
        if not click.confirm(question, err=True):
            raise click.exceptions.Exit(0)
    click.echo(item.solution.read_text(encoding="utf-8").rstrip())
    record(SolutionShown(exercise=item.id))
