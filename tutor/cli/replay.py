"""`tutor replay FILE`: play a saved trace, or a failed check of your own code, on screen or as text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tutor.grading import failures
from tutor.labs.registry import UnknownLab, get_kind
from tutor.trace.codec import TraceError, read_trace
from tutor.trace.perfetto import to_perfetto
from tutor.trace.playback import Playback

COULD_NOT_RUN = 3


@click.command(name="replay", help="Play a saved trace.")
@click.argument("path", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--failure",
    is_flag=False,
    flag_value="",
    metavar="[ID]",
    help="Open the newest failed check of your code (of exercise ID) at the step where it went wrong.",
)
@click.option("--plain", is_flag=True, help="Print every step as text.")
@click.option(
    "--at", "step", type=int, metavar="STEP", help="Open at this step (with --plain: print it only)."
)
@click.option(
    "--perfetto", type=click.Path(path_type=Path), help="Convert to a Chrome/Perfetto trace file instead."
)
@click.pass_obj
def command(
    obj: dict[str, Any],
    path: Path | None,
    failure: str | None,
    plain: bool,
    step: int | None,
    perfetto: Path | None,
) -> None:
    if (path is None) == (failure is None):
        raise click.UsageError("Give the file of a trace, or --failure.")
    path = path or _failed(failure or None)
    try:
        store = read_trace(path)
        kind = get_kind(store.header.lab)
    except (TraceError, UnknownLab) as error:
        click.echo(str(error), err=True)
        sys.exit(COULD_NOT_RUN)
    for warning in store.warnings:
        click.echo(warning, err=True)
    if perfetto is not None:
        try:
            perfetto.write_bytes(to_perfetto(store))
        except OSError as error:
            click.echo(f"Cannot write {perfetto}: {error.strerror}.", err=True)
            sys.exit(COULD_NOT_RUN)
        click.echo(f"Open {perfetto} in ui.perfetto.dev or chrome://tracing.")
        return
    if failure is not None and step is None:
        step = failures.violating_step(store)
    if not plain:
        from tutor.cli.app import run_app

        sys.exit(run_app(obj["model"], obj["workspace"], obj["ascii"], trace=path, at=step, fps=obj["fps"]))
    if step is not None and not 0 <= step <= store.last_step:
        raise click.UsageError(f"The trace has steps 0 to {store.last_step}, not {step}.")
    playback = Playback(store, follow=False)
    for number in range(store.last_step + 1) if step is None else (step,):
        playback.seek(number)
        click.echo(kind.plain(playback.view) + "\n")


def _failed(exercise: str | None) -> Path:
    """The newest trace of a failed check; a sentence and exit code 3 when there is none."""
    found = failures.latest(exercise)
    if found is None:
        of = f" of {exercise}" if exercise else ""
        click.echo(
            f"No failed check{of} left a recording. Checks of block tables do; see `tutor check`.", err=True
        )
        sys.exit(COULD_NOT_RUN)
    return found
