"""The panels of a watched server: pure functions from a frozen view to lines, repainted where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip

from tutor.client.attach.plain import number, rate, share, time_of
from tutor.client.attach.views import EngineView, LatencyView, ServerView, SlotView
from tutor.ui.widgets.panels.base import Line, clip, line_width, pad
from tutor.ui.widgets.panels.numbers import bar
from tutor.ui.widgets.styled_lines import StyledLines

LEVELS = " ▁▂▃▄▅▆▇█"
NO_LATENCIES = {
    "ok": "This server has no latency histograms.",
    "starting": "Waiting for the first answer.",
    "no metrics": "Latencies come from /metrics.",
}
LABEL = 12
FIGURE = 12


def sparkline(values: Sequence[float | None], width: int, top: float = 0.0) -> str:
    """The newest values, one a cell, scaled to `top` or to the largest shown; unknown ones are blank."""
    shown = list(values)[-width:] if width > 0 else []
    largest = max([top, *(value for value in shown if value is not None)], default=0.0)
    cells = [
        " " if value is None else LEVELS[max(1, round(value / largest * 8)) if value and largest else 1]
        for value in shown
    ]
    return "".join(cells).rjust(width)


class ServerPanel(StyledLines, can_focus=True):
    """Base: `TITLE`, `note` right of it, and `lines` from a view."""

    TITLE: ClassVar[str] = ""
    PREFIX = "panel"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "panel--title", "panel--note", "panel--muted", "panel--text", "panel--accent", "panel--good",
        "panel--bad", "panel--bar", "panel--now",
    }  # fmt: skip

    def __init__(self, id: str) -> None:
        super().__init__(classes="panel")
        self.id = id
        self._view: ServerView | None = None
        self._lines: tuple[Line, ...] = ()

    def lines(self, view: ServerView, width: int) -> tuple[Line, ...]:
        raise NotImplementedError

    def note(self, view: ServerView) -> str:
        return ""

    def show(self, view: ServerView) -> None:
        self._view = view
        self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self._lines))

    def _redraw(self) -> None:
        width = self.scrollable_content_region.width
        if self._view is None or width <= 0:
            return
        before, self._lines = self._lines, (self._title(width), *self.lines(self._view, width))
        self.virtual_size = Size(width, len(self._lines))
        if len(before) != len(self._lines):
            self.refresh(layout=True)
        for y in range(max(len(before), len(self._lines))):
            if before[y : y + 1] != self._lines[y : y + 1]:
                self.refresh_lines(y - self.scroll_offset.y, 1)

    def _title(self, width: int) -> Line:
        note = clip(self.note(self._view) if self._view else "", max(0, width - len(self.TITLE) - 2))
        gap = width - len(self.TITLE) - len(note)
        return ((self.TITLE, "title"), (" " * gap, ""), (note, "note"))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row = y + self.scroll_offset.y
        line = self._lines[row] if row < len(self._lines) else ()
        strip = Strip([Segment(text, self._style(name)) for text, name in line])
        return strip.adjust_cell_length(width, self._style(""))


class LoadPanel(ServerPanel):
    """Requests, KV cache, prefix cache, preemptions and tokens, each with what it did over time."""

    TITLE: ClassVar[str] = "LOAD"

    def note(self, view: ServerView) -> str:
        done = f"{rate(view.request_rate)} requests/s" if view.request_rate is not None else ""
        over = f"rates over {view.window:.0f} s" if view.window else ""
        return "  ".join(part for part in (done, over) if part)

    def lines(self, view: ServerView, width: int) -> tuple[Line, ...]:
        room = max(0, width - LABEL - FIGURE)
        points = view.points
        slots = f" of {view.capacity}" if view.capacity else ""
        top = float(len(view.slots))
        whole = view.kv_usage
        # without a figure of the cache itself, what busy slots fill of their contexts stands in
        cache = "contexts" if view.kv_note else "fullest KV" if view.engines else "KV cache"
        rows: list[Line] = [
            _row("running", number(view.running) + slots, sparkline([p.running for p in points], room, top)),
            _row("waiting", number(view.waiting), sparkline([p.waiting for p in points], room)),
            _row(cache, share(whole), bar(whole, room) if whole is not None else ""),
            _row("cache hits", _hits(view), _said(view.hit_rate_before, "since start", room)),
            _row("preempted", number(view.preemptions), _preempted(view, room)),
            _row("tokens/s in", rate(view.input_rate), ""),
            _row("tokens/s out", rate(view.output_rate), sparkline([p.output_rate for p in points], room)),
        ]
        if view.acceptance is not None:
            rows.append(_row("drafts ok", share(view.acceptance), ""))
        return tuple(rows)


def _row(label: str, figure: str, picture: str) -> Line:
    style = "muted" if figure == "unknown" else "now"
    return ((pad(label, LABEL + 1), "muted"), (pad(figure, FIGURE - 1), style), (picture, "bar"))


def _hits(view: ServerView) -> str:
    """Nothing was looked up lately is another thing than a server that does not tell."""
    if view.hit_rate is None and view.hit_rate_before is not None and view.window:
        return "none asked"
    return share(view.hit_rate)


def _said(value: float | None, what: str, room: int) -> str:
    return clip(f"{value:.0%} {what}", room) if value is not None else ""


def _preempted(view: ServerView, room: int) -> str:
    if not view.preemption_rate:
        return ""
    return clip(f"{view.preemption_rate:.2f} a second now", room)


class LatencyPanel(ServerPanel):
    """Percentiles from buckets, a line a latency."""

    TITLE: ClassVar[str] = "LATENCY"

    def note(self, view: ServerView) -> str:
        estimated = any(latency.percentiles for latency in view.latencies)
        return "estimated from buckets" if estimated else ""

    def lines(self, view: ServerView, width: int) -> tuple[Line, ...]:
        if not view.latencies:
            return (((NO_LATENCIES.get(view.status, NO_LATENCIES["ok"]), "muted"),),)
        wide = width >= 57
        head = pad("", 7) + "".join(pad(name.rjust(8), 9) for name in ("P50", "P95", "P99", "mean"))
        lines: list[Line] = [((clip(head + ("       n  over" if wide else "  over"), width), "muted"),)]
        for latency in view.latencies:
            runs = [(pad(latency.name, 7), "accent")]
            by_q = {p.q: (">" if p.above else "") + time_of(p.value) for p in latency.percentiles}
            for q in (50.0, 95.0, 99.0):
                runs.append((pad(by_q.get(q, "-").rjust(8), 9), "now" if q in by_q else "muted"))
            mean = time_of(latency.mean) if latency.mean is not None else "-"
            runs.append((pad(mean.rjust(8), 9), "now" if by_q or latency.mean is not None else "muted"))
            if wide:
                runs.append((f"{latency.count:8,}", "muted"))
            runs.append((clip(f"  {_covers(latency)}", max(0, width - line_width(tuple(runs)))), "muted"))
            lines.append(tuple(runs))
        return tuple(lines)


def _covers(latency: LatencyView) -> str:
    return "all" if latency.window is None else f"{latency.window:.0f} s"


class EnginesPanel(ServerPanel):
    """Each of several engines behind one server: data parallel ranks, or models."""

    TITLE: ClassVar[str] = "ENGINES"

    def note(self, view: ServerView) -> str:
        return f"{len(view.engines)} engines" if view.engines else ""

    def lines(self, view: ServerView, width: int) -> tuple[Line, ...]:
        counts = [_counts(engine) for engine in view.engines]
        names = max((len(engine.name) for engine in view.engines), default=0)
        names = min(names, max(6, width - max(map(len, counts), default=0) - SHARE))
        pairs = zip(view.engines, counts, strict=True)
        return tuple(_engine_line(engine, count, names, width) for engine, count in pairs)


SHARE = 6


def _counts(engine: EngineView) -> str:
    return f"{number(engine.running):>6} running {number(engine.waiting):>6} waiting  KV"


def _engine_line(engine: EngineView, counts: str, name_width: int, width: int) -> Line:
    usage = "  ?" if engine.kv_usage is None else share(engine.kv_usage)
    room = max(0, width - name_width - len(counts) - SHARE)
    gauge = bar(engine.kv_usage, room) if engine.kv_usage is not None else ""
    name = (pad(engine.name, name_width), "accent")
    return (name, (counts, "text"), (pad(f"{usage:>5}", SHARE), "now"), (gauge, "bar"))


class SlotsPanel(ServerPanel):
    """llama-server's slots: how much of its context each has filled, and with what."""

    TITLE: ClassVar[str] = "SLOTS"

    def note(self, view: ServerView) -> str:
        if not view.slots:
            return ""
        return f"{sum(slot.busy for slot in view.slots)} of {len(view.slots)} busy"

    def lines(self, view: ServerView, width: int) -> tuple[Line, ...]:
        if view.slots:
            return tuple(_slot_line(slot, width) for slot in view.slots)
        if view.kind == "llama-server" and view.status == "ok":
            return ((("No answer from /slots: llama-server was started with --no-slots.", "muted"),),)
        return ()


def _slot_line(slot: SlotView, width: int) -> Line:
    if not slot.busy:
        return ((f"{slot.slot:3} ", "muted"), ("idle", "muted"))
    phase = "decode " if slot.num_decoded else "prefill"
    text = f"{slot.num_prompt} in ({slot.num_cached} cached), {slot.num_decoded} out, {slot.num_left} to go"
    room = width - 13 - len(text) - 2
    gauge = bar(slot.num_used / slot.num_context, room) if room >= 6 and slot.num_context else ""
    return (
        (f"{slot.slot:3} ", "muted"),
        (f"{phase}  ", "accent"),
        (clip(text, max(0, width - 13)), "text"),
        ("  ", ""),
        (gauge, "bar"),
    )
