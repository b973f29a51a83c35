"""`tutor hint ID`: the next hint of an exercise; each call opens one more."""

from __future__ import annotations

import click

from tutor.cli.exercise_view import complete_exercise, done_so_far, exercise, record, stop
from tutor.journal.events import HintShown


@click.command("hint")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@click.option("--again", is_flag=True, help="Show the hints that are open already, and no new one.")
@click.pass_context
def command(ctx: click.Context, ident: str, again: bool) -> None:
    """Show the next hint of an exercise."""
    item = exercise(ident)
    opened = min(done_so_far(item.id).hints, len(item.hints))
    total = len(item.hints)
    if again:
        for index in range(opened):
            click.echo(f"Hint {index + 1} of {total}: {item.hints[index].strip()}\n")
        if not opened:
            click.echo(f"No hint is open yet. `tutor hint {item.id}` opens the first of {total}.")
        return
    if not total:
        stop(f"{item.id} has no hints.", 3)
    index = min(opened, total - 1)
    click.echo(f"Hint {index + 1} of {total}: {item.hints[index].strip()}")
    if opened < total:
        record(HintShown(exercise=item.id, index=index))
        return
    click.echo(f"That was the last one. `tutor solution {item.id}` shows a solution.")
