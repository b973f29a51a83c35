"""`tutor reset ID`: put an exercise back to its start; the learner's file is kept as a backup."""

from __future__ import annotations

import click

from tutor.cli.exercise_view import (
    chosen_language,
    complete_exercise,
    exercise,
    explained,
    language_option,
    record,
    workspace,
)
from tutor.journal.events import ExerciseReset


@click.command("reset")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@language_option
@click.pass_context
def command(ctx: click.Context, ident: str, language: str | None) -> None:
    """Put an exercise back to its start; your file is moved to a backup beside it."""
    item = chosen_language(ctx, exercise(ident), language)
    with explained():
        path, backup = workspace(ctx).reset(item)
    if backup is not None:
        record(ExerciseReset(exercise=item.id))
        click.echo(f"Your file is now {backup}")
    click.echo(f"Fresh start: {path}")
