"""Expected beside got: what a check compared after a call of the learner's code, and the moves so far."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from tutor.trace.views import LabView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, owner_style, pad

LONGEST_NAME = 18


class ComparedPanel(Panel):
    """The invariant in words, then one row a thing that was compared; a row that differs is marked ≠."""

    TITLE: ClassVar[str] = "EXPECTED AND GOT"
    WHAT: ClassVar[str] = "Nothing was compared yet: . goes one step on."

    def picture(self, view: LabView, width: int) -> Picture:
        compared = view.compared
        if compared is None:
            return Picture(())
        mark, style, word = ("✓ ", "good", "holds") if compared.holds else ("✗ ", "bad", "violated")
        lines: list[Line] = [((clip(compared.call, width), "accent"),)] if compared.call else []
        first, *rest = textwrap.wrap(compared.invariant, max(10, width - 2)) or [""]
        lines.append(((mark, style), (first, "text")))
        lines += [((f"  {line}", "text"),) for line in rest]
        name = min(LONGEST_NAME, max((len(what) for what, _, _ in compared.rows), default=0))
        room = max(6, (width - name - 4) // 2)
        if compared.rows:
            head = "  ", pad("", name) + " ", pad("expected", room) + " ", "got"
            lines.append(tuple((text, "muted") for text in head))
        for what, expected, got in compared.rows:
            same = expected == got
            shade = "text" if same else "bad"
            runs = ("  " if same else "≠ ", shade), (pad(what, name) + " ", "muted")
            lines.append((*runs, (pad(expected, room) + " ", "text"), (clip(got, room), shade)))
        return Picture(tuple(lines), (), word)


class MovesPanel(Panel):
    """The requests and what each did last, in words."""

    TITLE: ClassVar[str] = "MOVES"
    WHAT: ClassVar[str] = "No call yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = []
        for request in view.serving.requests:
            said = f"{request.num_computed_tokens} tokens in {len(request.block_ids)} blocks"
            lines.append(
                ((pad(request.label, 2), owner_style(request.label)), (clip(said, width - 2), "text"))
            )
        for line in textwrap.wrap(view.note, max(10, width)):
            lines.append(((line, "accent"),))
        lines += [((clip(text, width), "muted"),) for text in reversed(view.serving.decisions)]
        return Picture(tuple(lines))
