"""Two ways of computing the same text: their passes, what a token costs as the text grows, their caches."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from tutor.metrics.growth import TokenTime, growth, token_times
from tutor.trace.views import LabView, LaneView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, Run, clip, legend, line_width, pad, printable
from tutor.ui.widgets.panels.numbers import bar

SHOWN_PASSES = 8
STACKED_PASSES = 3  # of each lane when one stands above the other: both are to be seen at once
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
            passes = SHOWN_PASSES if len(lanes) == 1 else STACKED_PASSES
            lines = [line for lane in lanes for line in (*_lane(lane, width, most, passes), ())]
        totals = [lane.total_tokens for lane in lanes]
        note = f"{max(totals) / min(totals):.1f} times the tokens" if len(totals) == 2 and min(totals) else ""
        return Picture(tuple(lines), (), note)


def _lane(lane: LaneView, width: int, most: int, passes: int = SHOWN_PASSES) -> list[Line]:
    runs = [(n, d) for n, d in zip(lane.passes, lane.durations, strict=True) if n]
    seconds = sum(d for _, d in runs)
    total = f"{len(runs)} passes, {lane.total_tokens} tokens run, {seconds * 1000:.0f} ms"
    lines: list[Line] = [((clip(lane.lane, width), "accent"),), ((clip(total, width), "text"),)]
    if passes == SHOWN_PASSES:
        lines.append(((clip(f"{lane.cache_tokens} tokens in the KV cache", width), "muted"),))
    room = max(4, width - 28)
    shown = runs[-passes:]
    first = len(runs) - len(shown) + 1
    for number, (tokens, duration) in enumerate(shown, start=first):
        text = f"pass {number:3} {tokens:4} tok {duration * 1000:6.1f} ms "
        style = "now" if number == len(runs) else "text"
        lines.append(((text, style), (bar(tokens / most, room), "bar")))
    text = printable(lane.text)
    lines += [
        ((part, "text"),) for part in textwrap.wrap(text, width)[-(3 if passes == SHOWN_PASSES else 2) :]
    ]
    return lines


class GrowthPanel(Panel):
    """The median time of one new token at each length of the text, both lanes on one scale."""

    TITLE: ClassVar[str] = "TIME OF ONE NEW TOKEN"
    WHAT: ClassVar[str] = "Timed at growing lengths once the text is written."

    def picture(self, view: LabView, width: int) -> Picture:
        times = token_times(view.timed)
        if not times:
            return Picture(())
        slowest = max(each.seconds for each in times)
        lines: list[Line] = [((clip("token  lane               tokens run        ms", width), "muted"),)]
        newest = view.timed[-1].position
        for before, each in zip((None, *times), times, strict=False):
            is_first = before is None or before.position != each.position
            lines.append(_time_line(each, is_first, each.position == newest, slowest, width))
        lanes = list(dict.fromkeys(each.lane for each in times))
        grown = [(lane, growth(times, lane)) for lane in lanes]
        span = f"token {times[-1].position} against {times[0].position}:"
        for lane, ratio in grown:
            if ratio is not None:
                lines.append(((clip(f"{span} {lane} {ratio:.1f} times the time", width), "accent"),))
        lines += legend("all bars have one scale", width)
        return Picture(tuple(lines), (), f"medians of {max(each.num_samples for each in times)}")


def _time_line(each: TokenTime, is_first: bool, is_newest: bool, slowest: float, width: int) -> Line:
    position = f"{each.position:5}" if is_first else "     "
    text = f"{position}  {pad(each.lane, 18)} {each.num_tokens:10} {each.seconds * 1000:9.1f} "
    room = width - len(text)
    if room < 4:
        return ((clip(text, width), "now" if is_newest else "text"),)
    share = each.seconds / slowest if slowest else 0.0
    return ((text, "now" if is_newest else "text"), (bar(share, room), "bar"))


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
