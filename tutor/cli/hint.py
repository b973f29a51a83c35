"""`tutor hint ID`: the next hint of an exercise; each call opens one more."""

from __future__ import annotations

import textwrap

import click

from tutor.cli.course_view import output_width
from tutor.cli.exercise_view import (
    chosen_language,
    complete_exercise,
    done_so_far,
    exercise,
    record,
    stop,
)
from tutor.grading.exercise import Exercise
from tutor.journal.events import HintShown

MEASURE = 88  # columns; longer lines are hard to read


@click.command("hint")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@click.option("--again", is_flag=True, help="Show the hints that are open already, and no new one.")
@click.pass_context
def command(ctx: click.Context, ident: str, again: bool) -> None:
    """Show the next hint of an exercise."""
    item = chosen_language(ctx, exercise(ident), None)
    opened = min(done_so_far(item.id).hints, len(item.hints))
    total = len(item.hints)
    if again:
        for index in range(opened):
            click.echo(_hint(item, index) + "\n")
        if not opened:
            click.echo(f"No hint is open yet. `tutor hint {item.id}` opens the first of {total}.")
        return
    if not total:
        stop(f"{item.id} has no hints.", 3)
    index = min(opened, total - 1)
    click.echo(_hint(item, index))
    if opened < total:
        record(HintShown(exercise=item.id, index=index))
        return
    click.echo(f"That was the last one. `tutor solution {item.id}` shows a solution.")


def _hint(item: Exercise, index: int) -> str:
    """The hint as one paragraph, broken at words."""
    text = f"Hint {index + 1} of {len(item.hints)}: {' '.join(item.hints[index].split())}"
    width = min(output_width(), MEASURE)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
