"""Two ways of computing the same text, beside each other, and what each keeps in its cache."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from tutor.trace.views import LabView, LaneView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, Run, clip, line_width, pad, printable
from tutor.ui.widgets.panels.numbers import bar

SHOWN_PASSES = 8
BESIDE = 76  # columns from which two lanes stand beside each other


class LanesPanel(Panel):
    """For each lane: tokens run by each pass, time a pass, totals, and the text."""

    TITLE: ClassVar[str] = "LANES"
    WHAT: ClassVar[str] = "No pass was run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lanes = view.lanes
        if not lanes:
            return Picture(())
        most = max(max(lane.passes, default=1) for lane in lanes) or 1
        if len(lanes) == 2 and width >= BESIDE:
            half = width // 2 - 1
            left, right = (_lane(lane, half, most) for lane in lanes)
            rows = max(len(left), len(right))
            left += [()] * (rows - len(left))
            right += [()] * (rows - len(right))
            lines = [
                (*a, (" " * (half + 2 - line_width(a)), ""), *b) for a, b in zip(left, right, strict=True)
            ]
        else:
            lines = [line for lane in lanes for line in (*_lane(lane, width, most), ())]
        totals = [lane.total_tokens for lane in lanes]
        note = f"{max(totals) / min(totals):.1f} times the tokens" if len(totals) == 2 and min(totals) else ""
        return Picture(tuple(lines), (), note)


def _lane(lane: LaneView, width: int, most: int) -> list[Line]:
    runs = [(n, d) for n, d in zip(lane.passes, lane.durations, strict=True) if n]
    seconds = sum(d for _, d in runs)
    lines: list[Line] = [
        ((clip(lane.lane, width), "accent"),),
        (
            (
                clip(f"{len(runs)} passes, {lane.total_tokens} tokens run, {seconds * 1000:.0f} ms", width),
                "text",
            ),
        ),
        ((clip(f"{lane.cache_tokens} tokens in the KV cache", width), "muted"),),
    ]
    room = max(4, width - 28)
    shown = runs[-SHOWN_PASSES:]
    first = len(runs) - len(shown) + 1
    for number, (tokens, duration) in enumerate(shown, start=first):
        text = f"pass {number:3} {tokens:4} tok {duration * 1000:6.1f} ms "
        style = "now" if number == len(runs) else "text"
        lines.append(((text, style), (bar(tokens / most, room), "bar")))
    text = printable(lane.text)
    lines += [((part, "text"),) for part in textwrap.wrap(text, width)[-3:]]
    return lines


class CachePanel(Panel):
    """The cache of each lane as a row of entries, one for a position; dropped ones were recomputed."""

    TITLE: ClassVar[str] = "KV CACHE"
    WHAT: ClassVar[str] = "Nothing is cached yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = []
        for lane in view.lanes:
            lines.append(((pad(lane.lane, 24), "accent"), (f"{lane.cache_tokens} entries", "muted")))
            for start in range(0, lane.cache_tokens, max(1, width)):
                row: list[Run] = []
                for position in range(start, min(start + width, lane.cache_tokens)):
                    newest = position == lane.cache_tokens - 1
                    row.append(("█" if newest else "▒", "now" if newest else "bar"))
                lines.append(tuple(row))
            if not lane.cache_tokens:
                lines.append((("keeps nothing: every pass starts at position 0", "muted"),))
            for position, count in lane.dropped:
                lines.append(((f"✗ {count} entries dropped from position {position} on", "bad"),))
            lines.append(())
        return Picture(tuple(lines))
