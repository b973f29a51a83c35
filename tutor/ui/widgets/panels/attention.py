"""Attention: the map of one head, what the newest token reads, and all heads with their KV heads."""

from __future__ import annotations

from typing import ClassVar

from tutor.trace.events import AttentionRead
from tutor.trace.views import LabView
from tutor.ui.widgets.panels.base import (
    Item,
    Line,
    Panel,
    Picture,
    Run,
    clip,
    legend,
    line_width,
    pad,
    printable,
)
from tutor.ui.widgets.panels.numbers import bar

LABEL = 10  # columns of a token's text
SHADES = ((0.5, "█"), (0.25, "▓"), (0.1, "▒"), (0.02, "░"), (0.0, "·"))
FAINT = SHADES[-1][1]
LEGEND = "█ 50% or more  ▓ 25%  ▒ 10%  ░ 2%  · less  empty: masked"


def shade(weight: float) -> str:
    """A weight (0 to 1) as a character; the steps are those of LEGEND."""
    return next((mark for least, mark in SHADES if weight >= least), "!")


def labels(view: LabView) -> list[str]:
    """The text of each token for the eye."""
    pieces = view.tokens[-1].pieces if view.tokens else ()
    return [printable(piece.decode("utf-8", "replace")).replace(" ", "␣") for piece in pieces]


def is_alone(row: AttentionRead) -> bool:
    """Was this row computed without the rows before it, from cached keys and values?"""
    return row.num_queries == 1 and row.position > 0


def kv_head(row: AttentionRead, head: int) -> int:
    """Grouped-query attention: several neighbouring query heads share one KV head."""
    return head // (len(row.weights) // row.num_kv_heads)


def best(row: AttentionRead, head: int) -> int:
    """The position that the head takes most from."""
    weights = row.weights[head]
    return max(range(len(weights)), key=weights.__getitem__)


class AttentionPanel(Panel):
    """Rows are the tokens that read, columns the tokens that are read."""

    TITLE: ClassVar[str] = "ATTENTION MAP"
    WHAT: ClassVar[str] = "No row was read yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.attention:
            return Picture(())
        names = labels(view)
        columns = max(len(row.weights[0]) for row in view.attention)
        label = max(3, min(LABEL, width - 4 - columns))
        grid = _Grid(columns, label, width)
        lines: list[Line] = [_ruler(grid)]
        items: list[Item] = []
        for row in view.attention:
            items.append(Item("position", str(row.position), 0, len(lines), 3 + label))
            lines.append(_map_row(row, names, grid, row is view.attention[-1]))
        last = view.attention[-1]
        note = f"layer {last.layer}, head {last.head}, KV head {kv_head(last, last.head)}"
        lines += [*legend(LEGEND, width), ((clip(view.header.mode, width), "muted"),)]
        return Picture(tuple(lines), tuple(items), note)

    @property
    def follows_end(self) -> bool:
        return True


class _Grid:
    """How the map fits: columns of `cell` characters from position `first` on, behind a label."""

    def __init__(self, columns: int, label: int, width: int) -> None:
        self.columns, self.label, self.width = columns, label, width
        self.left = 3 + label + 1
        room = max(1, width - self.left)
        self.cell = max(1, min(3, room // columns))
        self.first = max(0, columns - room // self.cell)  # a terminal too narrow shows the newest


def _ruler(grid: _Grid) -> Line:
    """The positions above the map; only every fifth when columns are narrow."""
    every = 1 if grid.cell == 3 else 5
    marks = [str(place).ljust(grid.cell * every) for place in range(grid.first, grid.columns, every)]
    return ((" " * grid.left, ""), (clip("".join(marks), grid.width - grid.left), "muted"))


def _map_row(row: AttentionRead, names: list[str], grid: _Grid, newest: bool) -> Line:
    cell = grid.cell
    weights = row.weights[row.head]
    runs: list[Run] = [
        (f"{row.position:2} ", "muted"),
        (pad(names[row.position], grid.label) + " ", "now" if newest else "text"),
    ]
    for place, weight in enumerate(weights[grid.first :], start=grid.first):
        if place > row.position:
            hidden = weight == 0.0
            runs.append((" " * cell if hidden else "!" * cell, "" if hidden else "bad"))
        else:
            mark = shade(weight)
            runs.append(
                (
                    mark.center(cell) if mark == FAINT else mark * cell,
                    "accent" if weight >= SHADES[1][0] else "bar",
                )
            )
    top = best(row, row.head)
    said = f" {weights[top]:4.0%} {names[top]}" + (" (ran alone)" if is_alone(row) else "")
    room = grid.width - line_width(tuple(runs))
    return (*runs, (clip(said, room), "now" if newest else "muted")) if room >= 6 else tuple(runs)


class ReadsPanel(Panel):
    """The newest row in numbers: what was computed for it, and how much it takes from each position."""

    TITLE: ClassVar[str] = "WHAT IT READS"
    WHAT: ClassVar[str] = "No row was read yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.attention:
            return Picture(())
        row, names = view.attention[-1], labels(view)
        weights = row.weights[row.head]
        room = max(4, width - LABEL - 13)
        lines: list[Line] = [((clip(text, width), "text"),) for text in _counts(row, names)]
        for place in range(row.position + 1):
            own = place == row.position
            lines.append(
                (
                    (f"{place:2} ", "muted"),
                    (pad(names[place], LABEL), "now" if own else "text"),
                    (f"{weights[place]:7.1%} ", "accent" if weights[place] >= SHADES[1][0] else "text"),
                    (bar(weights[place], room), "bar"),
                )
            )
        later = sum(weights[row.position + 1 :])
        total = f"   {'sum':<{LABEL}}{sum(weights):7.1%}   later tokens {later:.1%}"
        lines.append(((clip(total, width), "good" if later == 0.0 else "bad"),))
        lines += legend(f"measured:  {view.header.mode}", width)
        return Picture(tuple(lines), (), f"token {row.position}, head {row.head}")


def _counts(row: AttentionRead, names: list[str]) -> list[str]:
    if is_alone(row):
        return [
            f"{names[row.position]} ran alone: 1 new q, k and v.",
            f"Read from the cache: {row.position} k, {row.position} v, 0 q.",
        ]
    plural = "s" if row.num_queries != 1 else ""
    return [
        f"One pass computed all {row.num_queries} row{plural} of q, k and v.",
        f"This row of q is used here, against {row.position + 1} k, and never again.",
    ]


class HeadsPanel(Panel):
    """The newest row for every query head; heads that share a KV head are bracketed."""

    TITLE: ClassVar[str] = "HEADS"
    WHAT: ClassVar[str] = "No row was read yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.attention:
            return Picture(())
        row, names = view.attention[-1], labels(view)
        group = len(row.weights) // row.num_kv_heads
        strip = max(4, min(row.position + 1, width - 17 - 6 - LABEL))
        lines: list[Line] = []
        for head, weights in enumerate(row.weights):
            first, last = head % group == 0, head % group == group - 1
            joint = "─" if group == 1 else "┬" if first else "└" if last else "├"
            top = best(row, head)
            shown = "".join(map(shade, weights[: row.position + 1][-strip:])).ljust(strip)
            lines.append(
                (
                    (f"KV {head // group} " if first else "     ", "text"),
                    (f"{joint} head {head} ", "now" if head == row.head else "muted"),
                    (shown, "accent" if head == row.head else "bar"),
                    (f" {weights[top]:4.0%} ", "text"),
                    (clip(names[top], LABEL), "now" if head == row.head else "text"),
                )
            )
        first_share = sum(weights[0] for weights in row.weights) / len(row.weights)
        return Picture(tuple(lines), (), f"first token {first_share:.0%} on average")


def position_story(view: LabView, key: str) -> tuple[str, list[str]]:
    """Title and lines for the inspector: what a token reads, and which later tokens read it."""
    place, names = int(key), labels(view)
    row = next(row for row in view.attention if row.position == place)
    weights = row.weights[row.head]
    order = sorted(range(place + 1), key=lambda other: -weights[other])[:6]
    lines = [
        f"Layer {row.layer}, head {row.head}, which reads KV head {kv_head(row, row.head)}.",
        "",
        f"Its query was compared with the keys of positions 0 to {place}. It takes:",
        *(f"  {weights[other]:6.1%}  {other:2} {names[other]}" for other in order),
        "",
        "Its own key and value are read again by every later token:",
    ]
    later = [other for other in view.attention if other.position > place]
    lines += [
        f"  {other.weights[other.head][place]:6.1%}  by {other.position:2} {names[other.position]}"
        for other in later
    ]
    return f"Token {place} {names[place]}", lines if later else [*lines, "  none has come yet."]
