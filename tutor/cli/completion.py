"""`tutor completion SHELL`: the script that lets a shell complete commands and lesson ids."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tutor.cli.course_view import USAGE, stop

_SHELLS = ("bash", "zsh", "fish")
_WHERE = {
    "bash": 'Put this into ~/.bashrc: eval "$(tutor completion bash)"',
    "zsh": 'Put this into ~/.zshrc: eval "$(tutor completion zsh)"',
    "fish": "Put this into ~/.config/fish/config.fish: tutor completion fish | source",
}


@click.command("completion")
@click.argument("shell", required=False, type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print a shell completion script for bash, zsh or fish.

    Without SHELL, the one of your $SHELL is printed.
    """
    from click.shell_completion import get_completion_class

    shell = shell or Path(os.environ.get("SHELL", "")).name
    completion = get_completion_class(shell) if shell in _SHELLS else None
    if completion is None:
        stop(f"Say which shell: `tutor completion {'|'.join(_SHELLS)}`.", USAGE)
    click.echo(f"# {_WHERE[shell]}")
    click.echo(completion(ctx.find_root().command, {}, "tutor", "_TUTOR_COMPLETE").source())
