"""`tutor lab ID`: run a lab on the real engine, in the full-screen tutor, as text, or headless."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from tutor.cli.course_view import find_lesson
from tutor.labs.plain_serving import mechanism_lines
from tutor.labs.registry import UnknownLab, get_kind, kinds
from tutor.labs.scenario import KnobError, Knobs, LabKind
from tutor.labs.session import LabSession
from tutor.trace.codec import TraceError

COULD_NOT_RUN = 3


def _knob_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--knob")
        given[name.strip()] = value.strip()
    return given


def _kind(name: str) -> LabKind:
    """The lab of this id, or of the lesson with this alias or title. Raises UnknownLab."""
    try:
        return get_kind(name)
    except UnknownLab:
        lesson = find_lesson(name)
        if lesson is None:
            raise
        return get_kind(lesson.id)


def _describe(kind: LabKind) -> str:
    lines = [f"{kind.title}: {kind.phenomenon}", "Knobs (--knob NAME=VALUE):"]
    for knob in kind.knobs:
        allowed = ", ".join(knob.choices) or (f"{knob.low}..{knob.high}" if knob.high else knob.kind)
        lines.append(f"  {knob.name} = {knob.default}  ({allowed})  {knob.help}")
    return "\n".join(lines)


async def run_to_end(
    kind: LabKind, knobs: Knobs, model: str | None, plain: bool, pace: float, n_gpu_layers: int = 0
) -> LabSession:
    """Run a lab until nothing is left to do; with `plain`, print each step as text."""
    arrived = asyncio.Event()
    session = LabSession(
        kind, knobs, model, on_change=arrived.set, steps_per_second=pace, n_gpu_layers=n_gpu_layers
    )
    await session.start()
    shown = -1
    show_progress = not plain and sys.stderr.isatty()
    while True:
        await arrived.wait()
        arrived.clear()
        session.tick(0.0)
        view = session.view
        if view is not None and plain and session.playback is not None:
            # A step is complete when the next one has begun or the run is over.
            complete = session.last_step - (0 if session.status in ("done", "dead") else 1)
            while shown < complete:
                shown += 1
                session.playback.seek(shown)
                click.echo(kind.plain(session.playback.view) + "\n")
            session.playback.follow()
        elif show_progress:
            click.echo(f"\rstep {session.last_step}", nl=False, err=True)
        if session.status in ("done", "dead"):
            break
    if show_progress:
        click.echo(err=True)
    await session.stop()
    return session


def _cells_line(session: LabSession) -> str | None:
    view = session.view
    if view is None or view.serving.cells is None:
        return None
    cells = view.serving.cells
    return f"cell map: {cells.num_compared} cells compared, {cells.num_mismatches} mismatches"


def _summary(session: LabSession) -> list[str]:
    """What a headless run prints: a line a request, the pool, and the comparison with llama.cpp last."""
    view = session.view
    if view is None:
        return []
    serving = view.serving
    lines = [f"{len(session.store or ())} records, {session.last_step} steps, {view.header.model}"]
    for request in serving.requests:
        lines.append(
            f"{request.label}: {request.num_output_tokens} tokens ({request.finish_reason}), "
            f"{request.num_cached_tokens} cached, preempted {request.num_preemptions} times"
        )
    if serving.requests:
        held = serving.num_used_blocks
        lines.append(f"preemptions: {serving.num_preemptions}, blocks still held at the end: {held}")
        lines += mechanism_lines(view)
    cells = _cells_line(session)
    return [*lines, cells] if cells else lines


@click.command(
    name="lab", help="Run a lab on the real engine, on screen or as text. Without ID: list the labs."
)
@click.argument("lab_id", metavar="[ID]", required=False)
@click.option("--headless", is_flag=True, help="Run to the end without a screen and print a summary.")
@click.option("--plain", is_flag=True, help="Print every step as text (for screen readers and pipes).")
@click.option("--trace", "trace_path", type=click.Path(path_type=Path), help="Save the trace to this file.")
@click.option("--knob", "pairs", multiple=True, metavar="NAME=VALUE", help="Set a knob (may be repeated).")
@click.option(
    "--n-gpu-layers",
    type=click.IntRange(-1),
    default=0,
    metavar="N",
    help="Layers for the GPU: 0 none (the lessons' figures), -1 all; needs a llama.cpp built for it.",
)
@click.option("--knobs", "show_knobs", is_flag=True, help="List the lab's knobs and stop.")
@click.pass_obj
def command(
    obj: dict[str, Any],
    lab_id: str | None,
    headless: bool,
    plain: bool,
    trace_path: Path | None,
    pairs: tuple[str, ...],
    show_knobs: bool,
    n_gpu_layers: int,
) -> None:
    if lab_id is None:
        for known in kinds():
            kind = get_kind(known)
            click.echo(f"{known:14} {kind.title}: {kind.phenomenon}")
        return
    try:
        kind = _kind(lab_id)
        knobs = kind.settings(_knob_pairs(pairs))
    except (UnknownLab, KnobError) as error:
        raise click.UsageError(str(error)) from error
    if show_knobs:
        click.echo(_describe(kind))
        return
    if not (headless or plain or trace_path):
        from tutor.cli.app import run_app

        shown = {"lab": kind.id, "knobs": knobs, "fps": obj["fps"], "n_gpu_layers": n_gpu_layers}
        sys.exit(run_app(obj["model"], obj["workspace"], obj["ascii"], **shown))
    sys.exit(_run(kind, knobs, obj["model"], plain, trace_path, n_gpu_layers))


def _run(
    kind: LabKind, knobs: Knobs, model: str | None, plain: bool, trace_path: Path | None, n_gpu_layers: int
) -> int:
    try:
        session = asyncio.run(run_to_end(kind, knobs, model, plain, 0.0, n_gpu_layers))
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
        return 130
    if session.status == "dead":
        click.echo(session.error, err=True)
        for line in session.last_words:
            click.echo(f"  {line}", err=True)
        return COULD_NOT_RUN
    if trace_path is not None:
        try:
            session.save(trace_path)
        except TraceError as error:
            click.echo(str(error), err=True)
            return COULD_NOT_RUN
        click.echo(f"trace: {trace_path}")
    for line in _summary(session):
        click.echo(line)
    cells = session.view.serving.cells if session.view else None
    return 1 if cells is not None and cells.num_mismatches else 0
