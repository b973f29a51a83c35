"""The frames of one answer in each dialect, and the timing fields with what follows from them."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from rich.cells import chop_cells

from tutor.trace.events import FrameWritten, TimingsRead
from tutor.trace.views import LabView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, legend, pad

SHOWN_LINES = 12  # of one frame: the requests and the last bodies are long


class WirePanel(Panel):
    """All frames of one dialect, oldest first: sent ones with →, received ones with ←."""

    DIALECT: ClassVar[str] = ""
    WHAT: ClassVar[str] = "Nothing was sent yet."

    def picture(self, view: LabView, width: int) -> Picture:
        frames = [frame for frame in view.frames if frame.dialect == self.DIALECT]
        lines: list[Line] = []
        call = 0
        for frame in frames:
            if frame.call != call:
                call = frame.call
                lines += [()] if lines else []
            lines += _frame_lines(frame, width, newest=frame is frames[-1])
        size = sum(len(frame.text.encode()) for frame in frames if frame.way == "received")
        calls = f" in {call} calls" if call > 1 else ""
        note = f"{size:,} bytes received{calls}" if size else ""
        return Picture(tuple(lines), (), note)

    @property
    def follows_end(self) -> bool:
        return True


class OpenAIPanel(WirePanel):
    TITLE: ClassVar[str] = "OPENAI"
    DIALECT: ClassVar[str] = "openai"


class LlamaPanel(WirePanel):
    TITLE: ClassVar[str] = "LLAMA.CPP"
    DIALECT: ClassVar[str] = "llama.cpp"


class OllamaPanel(WirePanel):
    TITLE: ClassVar[str] = "OLLAMA"
    DIALECT: ClassVar[str] = "ollama"


def _frame_lines(frame: FrameWritten, width: int, *, newest: bool) -> list[Line]:
    mark, quiet = ("→ ", "accent") if frame.way == "sent" else ("← ", "text")
    style = "now" if newest else quiet
    lines: list[Line] = []
    for part in filter(None, frame.text.split("\n")):
        # cut by cells, not at spaces: every space of a frame is there on the wire
        for row in chop_cells(part, max(10, width - 2))[:SHOWN_LINES]:
            lines.append(((mark if not lines else "  ", "muted"), (row, style)))
    return lines


class TimingsPanel(Panel):
    """The timing fields of every finished call, and the rates that a client can work out."""

    TITLE: ClassVar[str] = "TIMING FIELDS"
    WHAT: ClassVar[str] = "They come with the last frame."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = []
        for timing in reversed(view.timings):
            lines.append(((f"call {timing.call}  {timing.dialect}", "accent"),))
            lines += [(("  " + row, "text"),) for row in _fields(timing, width - 2)]
            lines += [(("  " + row, "good"),) for row in _results(timing, width - 2)]
        calls = len({timing.call for timing in view.timings})
        return Picture(tuple(lines), (), f"{calls} calls, newest first" if calls > 1 else "")


def _fields(timing: TimingsRead, width: int) -> list[str]:
    """Name and value in as many columns as fit."""
    longest = max((len(name) for name, _ in timing.fields), default=0)
    cell = longest + 16
    columns = max(1, width // cell)
    cells = [pad(f"{pad(name, longest)} {_number(value):>13}", cell) for name, value in timing.fields]
    return ["".join(cells[at : at + columns]).rstrip() for at in range(0, len(cells), columns)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.3f}"


def _results(timing: TimingsRead, width: int) -> list[str]:
    """What follows, or why nothing does."""
    if timing.prefill_tps is None and timing.decode_tps is None and timing.ttft_ms is None:
        parts = ["it counts tokens and tells no time: use your own clock"]
    else:
        parts = [f"{name} {_rate(value)}" for name, value in (
            ("prefill", timing.prefill_tps), ("decode", timing.decode_tps))]  # fmt: skip
        parts.append(f"first token after {timing.ttft_ms:.1f} ms" if timing.ttft_ms else "")
    if timing.context_tokens is not None:
        parts.append(f"context {timing.context_tokens} tokens")
    text = "  ".join("= " + part for part in parts if part)
    lines = ["".join(run for run, _ in line) for line in legend(text, width)]
    return [row for line in lines for row in textwrap.wrap(line, max(10, width), subsequent_indent="  ")]


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} tok/s"
