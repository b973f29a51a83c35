"""`tutor start ID`: put an exercise's file into the workspace."""

from __future__ import annotations

import click

from tutor.cli.exercise_view import complete_exercise, exercise, explained, workspace


@click.command("start")
@click.argument("ident", metavar="ID", shell_complete=complete_exercise)
@click.pass_context
def command(ctx: click.Context, ident: str) -> None:
    """Put a lesson's exercise file into your workspace and show what to write. Never overwrites."""
    item = exercise(ident)
    with explained():
        path, made = workspace(ctx).start(item)
        news = workspace(ctx).news(item)
    click.echo(f"{item.title}\n\n{item.statement.strip()}\n")
    for signature in item.signatures:
        click.echo(f"    {signature}")
    click.echo(f"\n{'Made' if made else 'Already there, left as it is:'} {path}")
    for line in news:
        click.echo(line)
    if news:
        click.echo(f"Or: `tutor reset {item.id}` gives you the new start and keeps a backup.")
    click.echo(f"Edit it, then: tutor check {item.id}")
