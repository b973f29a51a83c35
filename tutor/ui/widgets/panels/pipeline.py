"""A request's life: its stages along one axis of measured time, and what each of them did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len

from tutor.trace.views import LabView, StageView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, pad, printable
from tutor.ui.widgets.panels.base import Run as Piece

STAGES = ("template", "tokenize", "prefill", "decode", "detokenize", "stop")
MODEL_STAGES = ("prefill", "decode")
NAME, TIMES, TIME = 12, 5, 10  # columns
MOST_LINES, LINES_BEFORE = 4, 3  # of one stage's detail: of the current one, of those before it


class PipelinePanel(Panel):
    """The six stages as lights with their measured times, then what each did.

    A stage that ran more than once has one bar a run, neighbours in two shades. Detokenize and stop come last
    with the time of all their runs together, since they run after every pass.
    """

    TITLE: ClassVar[str] = "STAGES"
    WHAT: ClassVar[str] = "The request has not begun."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.stages:
            return Picture(())
        current = view.stages[-1].stage
        whole = sum(stage.duration or 0.0 for stage in view.stages)
        lines = [_lane(view.stages, name, name == current, whole, width) for name in STAGES]
        if whole:
            lines.append(_axis(whole, width))
        for name in STAGES:
            details = [stage.detail for stage in view.stages if stage.stage == name]
            if details:
                lines += _told(name, details[-1], name == current, width)
        return Picture(tuple(lines), note=f"{whole * 1000:.1f} ms measured" if whole else "")


def _lane(stages: Sequence[StageView], name: str, current: bool, whole: float, width: int) -> Line:
    """Light, name, number of runs, time, and where the runs lie on the axis from 0 to `whole` seconds."""
    runs = [stage for stage in stages if stage.stage == name]
    mark, style = ("●", "accent") if current else ("✓", "good") if runs else ("·", "muted")
    times = f"×{len(runs)}" if len(runs) > 1 else ""
    took = f"{sum(run.duration or 0.0 for run in runs) * 1000:.1f} ms" if runs and whole else ""
    head = (
        (f"{mark} {pad(name, NAME - 2)}", style),
        (pad(times, TIMES), "muted"),
        (took.rjust(TIME), "text"),
    )
    room = width - NAME - TIMES - TIME - 1
    if not whole or room < 10:
        return head
    return (*head, (" ", ""), *_bars(stages, name, whole, room))


def _bars(stages: Sequence[StageView], name: str, whole: float, room: int) -> list[Piece]:
    cells: list[Piece] = [(" ", "")] * room
    before, number = 0.0, 0
    style = "bar" if name in MODEL_STAGES else "accent"
    for stage in stages:
        after = before + (stage.duration or 0.0)
        if stage.stage == name and stage.duration is not None:
            begin = min(room - 1, round(before / whole * room))
            end = max(begin + 1, min(room, round(after / whole * room)))
            narrow = (after - before) / whole * room < 0.5
            fill = "▏" if narrow else "▓" if number % 2 else "█"
            cells[begin:end] = [(fill, style)] * (end - begin)
            number += 1
        before = after
    return cells


def _axis(whole: float, width: int) -> Line:
    """0 and the whole time, under the ends of the bars."""
    start = NAME + TIMES + TIME + 1
    end = f"{whole * 1000:.0f} ms"
    if width - start < 10:
        return ()
    return ((" " * start + "0" + end.rjust(width - start - 1), "muted"),)


def _told(name: str, detail: str, current: bool, width: int) -> list[Line]:
    style = "now" if current else "text"
    room, most = max(20, width - NAME), MOST_LINES if current else LINES_BEFORE
    parts = _wrapped(printable(detail), room)
    if len(parts) > most:
        parts = [*parts[: most - 1], clip(parts[most - 1] + "…", room)]
    first: Line = ((pad(name, NAME), "muted"), (parts[0], style))
    return [first, *(((" " * NAME + part, style),) for part in parts[1:])]


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells (some characters take two), broken at spaces if it can."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for char in word:
            if cell_len(lines[-1] + char) > width:
                lines.append("")
            lines[-1] += char
    return lines
