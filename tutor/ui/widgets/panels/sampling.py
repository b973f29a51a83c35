"""Sampling: the next token's distribution, the stages that shaped it, and texts drawn from it."""

from __future__ import annotations

from typing import ClassVar

from tutor.trace.events import DistributionShaped, StreamGrew
from tutor.trace.views import LabView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, Run, clip, legend, line_width, pad, printable
from tutor.ui.widgets.panels.numbers import bar

LABEL = 12
RARE = 10  # from this rank on, the model itself thought a token unlikely


def shown(text: str) -> str:
    return printable(text).replace(" ", "␣")


class DistributionPanel(Panel):
    """The model's likeliest tokens: their probability now, what the model gave them, and the draws."""

    TITLE: ClassVar[str] = "NEXT TOKEN"
    WHAT: ClassVar[str] = "The model has not run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.shapes:
            return Picture(())
        first, last = view.shapes[0], view.shapes[-1]
        counts = view.draws.counts if view.draws else ()
        room = max(4, width - LABEL - 18 - 6)
        head = f"{'':<{LABEL}}{'model':>7}  {'now':>7}  {'':<{room}}" + (" drawn" if counts else "")
        lines: list[Line] = [((clip(head, width), "muted"),)]
        for index, p in enumerate(last.probabilities):
            drawn = f"{counts[index]:6}" if counts else ""
            lines.append(_token_line(first, last.texts[index], first.probabilities[index], p, room, drawn))
        lines.append(_rest(first, last, view, room))
        return Picture(tuple(lines), (), f"after {last.stage}, entropy {last.entropy:.2f} bits")


def _token_line(first: DistributionShaped, text: str, own: float, now: float, room: int, drawn: str) -> Line:
    dropped = now == 0.0
    return (
        (pad(shown(text), LABEL), "muted" if dropped else "text"),
        (f"{own:7.1%}  ", "muted"),
        ("dropped  " if dropped else f"{now:7.1%}  ", "muted" if dropped else "now"),
        (bar(now, room), "bar"),
        (drawn, "accent"),
    )


def _rest(first: DistributionShaped, last: DistributionShaped, view: LabView, room: int) -> Line:
    """All tokens that are not listed, together."""
    listed = sum(p > 0 for p in last.probabilities)
    own, now = (max(0.0, 1.0 - sum(s.probabilities)) for s in (first, last))
    drawn = f"{view.draws.num_draws - sum(view.draws.counts):6}" if view.draws else ""
    left = last.num_left - listed
    name, share = (f"{left:,} more", f"{now:7.1%}  ") if left else ("all others", "dropped  ")
    return (
        (pad(name, LABEL), "muted"),
        (f"{own:7.1%}  ", "muted"),
        (share, "now" if left else "muted"),
        (bar(now, room), "muted"),
        (drawn, "accent"),
    )


class StagesPanel(Panel):
    """One line a stage, in the order in which they ran."""

    TITLE: ClassVar[str] = "STAGES"
    WHAT: ClassVar[str] = "No stage has run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.shapes:
            return Picture(())
        lines: list[Line] = [((clip("stage               left    kept     top  entropy", width), "muted"),)]
        for index, stage in enumerate(view.shapes):
            newest = stage is view.shapes[-1]
            before = view.shapes[index - 1] if index else None
            idle = (
                before is not None and before.entropy == stage.entropy and before.num_left == stage.num_left
            )
            name = f"{stage.stage} {stage.setting}"
            text = f"{pad(name, 16)}{stage.num_left:8,}{stage.kept:8.1%}{stage.top:8.1%}"
            text += f"{stage.entropy:6.2f} bits"
            style = "now" if newest else "muted" if idle else "text"
            lines.append(((clip(text, width), style),))
        text = "left: tokens with a chance  kept: the share they had before  top: the likeliest one's chance"
        return Picture((*lines, (), *legend(text, width)))


class StreamsPanel(Panel):
    """The greedy text and the drawn ones; tokens that the model ranked low stand out."""

    TITLE: ClassVar[str] = "TEXTS"
    WHAT: ClassVar[str] = "No text was begun yet."

    def picture(self, view: LabView, width: int) -> Picture:
        texts: dict[str, list[StreamGrew]] = {}
        for grown in view.streams:
            texts.setdefault(grown.stream, []).append(grown)
        lines: list[Line] = []
        for name, tokens in texts.items():
            rare = sum(token.rank > RARE for token in tokens)
            head: list[Run] = [(pad(name, 12), "accent"), (f"{len(tokens)} tokens, {rare} rare", "muted")]
            if tokens[-1].repeats:
                head.append((f"  loops: {tokens[-1].repeats} tokens again", "bad"))
            lines += [_cut(tuple(head), width), *_wrapped(tokens, width), ()]
        if lines:
            lines += legend(f"bold: rare  beyond rank {RARE} in the model's own order", width)
        return Picture(tuple(lines), (), f"{len(texts)} texts" if texts else "")


def _cut(line: Line, width: int) -> Line:
    """Drops runs from the end until the line fits."""
    while line_width(line) > width and len(line) > 1:
        line = line[:-1]
    return line


def _wrapped(tokens: list[StreamGrew], width: int) -> list[Line]:
    """The text, token by token, broken between tokens."""
    rows: list[list[Run]] = [[]]
    used = 0
    for token in tokens:
        text = clip(printable(token.text), width)
        run: Run = (text, "accent" if token.rank > RARE else "text")
        size = line_width((run,))
        if used + size > width:
            rows.append([])
            used = 0
        rows[-1].append(run)
        used += size
    return [tuple(row) for row in rows]
