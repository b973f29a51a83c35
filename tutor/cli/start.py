"""`tutor start ID`: put an exercise's file into the workspace."""

from __future__ import annotations

import click

from tutor.cli.course_view import printable, use_ascii
from tutor.cli.exercise_view import (
    chosen_language,
    complete_exercise,
    exercise,
    explained,
    language_option,
    workspace,
)
from tutor.cli.lesson import rendered
from tutor.grading.exercise import LANGUAGE_NAMES


@click.command("start")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@language_option
@click.pass_context
def command(ctx: click.Context, ident: str, language: str | None) -> None:
    """Put a lesson's exercise file into your workspace and show what to write. Never overwrites."""
    item = chosen_language(ctx, exercise(ident), language)
    with explained():
        path, made = workspace(ctx).start(item)
        news = workspace(ctx).news(item)
    shown = rendered(f"# {item.title}\n\n{item.statement.strip()}", use_ascii(ctx))
    click.echo(printable(shown) + "\n")
    for signature in item.signatures:
        click.echo(f"    {signature}")
    click.echo(f"\n{'Made' if made else 'Already there, left as it is:'} {path}")
    for line in news:
        click.echo(line)
    if news:
        click.echo(f"Or: `tutor reset {item.id}` gives you the new start and keeps a backup.")
    click.echo(f"Edit it, then: tutor check {item.id}")
    for other in item.languages:
        if other != item.language:
            click.echo(f"The same in {LANGUAGE_NAMES[other]}: tutor start {item.id} --language {other}")
