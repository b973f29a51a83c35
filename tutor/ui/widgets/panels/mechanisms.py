"""What the engine's mechanisms did so far, and what the KV memory holds, in the cache and outside it."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from tutor.metrics.waste import Waste, kv_waste
from tutor.trace.views import LabView, MechanismsView, ServingView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, pad

MIB = 1 << 20
LABEL = 11
BAR = 30


class WorthPanel(Panel):
    """Sums since the run began, one line a mechanism; run again with other knobs and compare."""

    TITLE: ClassVar[str] = "WORTH"
    WHAT: ClassVar[str] = "No step has run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        serving, m = view.serving, view.serving.mechanisms
        if not m.num_steps:
            return Picture(())
        rows = [
            ("computed", f"{m.num_rows} tokens in {m.num_steps} steps", True),
            ("written", _written(serving), True),
            ("prefix", *_prefix(serving)),
            ("preempted", *_preempted(m)),
            ("drafts", *_drafts(m)),
            ("tiers", *_tiers(m)),
            ("cells", *_cells(serving)),
        ]
        lines: list[Line] = []
        for label, text, happened in rows:
            parts = textwrap.wrap(text, max(12, width - LABEL)) or [""]
            for index, part in enumerate(parts):
                head = pad(label if index == 0 else "", LABEL)
                lines.append(((head, "muted"), (part, "text" if happened else "muted")))
        where = "in the engine" if view.header.clock == "wall" else "modelled"
        return Picture(tuple(lines), (), f"so far, {m.seconds:.2f} s {where}")


def _written(serving: ServingView) -> str:
    written, m = serving.num_output_tokens, serving.mechanisms
    if not written:
        return "nothing yet"
    return f"{written} tokens; {m.num_rows / written:.2f} computed for each"


def _prefix(serving: ServingView) -> tuple[str, bool]:
    if not serving.prefix_hits:
        return "no token came from the prefix cache", False
    rate = serving.prefix_hits / serving.prefix_queries
    return f"{serving.prefix_hits} of {serving.prefix_queries} tokens from the cache ({rate:.0%})", True


def _preempted(m: MechanismsView) -> tuple[str, bool]:
    parts = []
    if m.recomputes:
        parts.append(f"{m.recomputes} thrown away: {m.num_lost} tokens lost")
    if m.swaps_out:
        parts.append(f"{m.swaps_out} swapped out, {m.swaps_in} back: {m.num_swapped} tokens saved")
    return "; ".join(parts) or "nobody", bool(parts)


def _drafts(m: MechanismsView) -> tuple[str, bool]:
    if not m.num_drafted:
        return "none", False
    text = f"{m.num_drafted}: {m.num_accepted} accepted ({m.acceptance_rate:.0%}), {m.num_rejected} wasted"
    return text, True


def _tiers(m: MechanismsView) -> tuple[str, bool]:
    if not m.saves:
        return "nothing saved", False
    return f"{m.saves} saved, {m.loads} loaded: {m.num_loaded} tokens not computed", True


def _cells(serving: ServingView) -> tuple[str, bool]:
    cells = serving.cells
    if cells is None:
        return "llama.cpp's cells were not read", False
    return f"{cells.num_compared} compared with llama.cpp, {cells.num_mismatches} differ", True


class MemoryPanel(Panel):
    """What the held KV positions hold, and the tiers outside the cache with their newest moves."""

    TITLE: ClassVar[str] = "MEMORY"
    WHAT: ClassVar[str] = "No block pool yet."

    def picture(self, view: LabView, width: int) -> Picture:
        serving = view.serving
        if not serving.blocks:
            return Picture(())
        waste, m = kv_waste(serving), serving.mechanisms
        lines = _held_lines(waste, len(serving.blocks) * serving.block_size, width)
        lines.append((("outside the cache", "muted"),))
        if not m.tiers:
            lines.append((("nothing was saved", "muted"),))
        for tier in m.tiers:
            s = "" if tier.num_sequences == 1 else "s"
            what = f"{tier.num_sequences} sequence{s}, {tier.num_bytes / MIB:.2f} MiB"
            lines.append(((pad(tier.name, LABEL), "muted"), (what, "text")))
        for move in reversed(m.moves):
            folded = textwrap.wrap(move, max(12, width - 2)) or [""]
            lines += [((part if i == 0 else f"  {part}", "muted"),) for i, part in enumerate(folded)]
        return Picture(tuple(lines), (), f"mean use of held blocks {m.mean_use:.0%}")


def _held_lines(waste: Waste, total: int, width: int) -> list[Line]:
    """A bar of the whole pool in positions, then each part of it in numbers."""
    room = max(10, min(BAR, width - 2))
    parts = (
        ("used", waste.used, "█", "accent", "positions that hold a token"),
        ("internal", waste.internal, "▒", "bar", "left over in part-filled blocks"),
        ("reserved", waste.reserved, "░", "bad", "in blocks held, not begun"),
        ("free", total - waste.held, "·", "muted", _free(waste)),
    )
    marks = "".join(mark * round(room * count / total) for _, count, mark, _, _ in parts)
    bar: Line = tuple((mark, _style_of(mark, parts)) for mark in marks[:room])
    lines: list[Line] = [bar]
    for name, count, mark, style, what in parts:
        text = clip(what, max(4, width - LABEL - 9))
        lines.append(((f"{mark} ", style), (pad(name, LABEL - 2), "muted"), (f"{count:5}  ", "text"),
                      (text, "muted")))  # fmt: skip
    return lines


def _style_of(mark: str, parts: tuple[tuple[str, int, str, str, str], ...]) -> str:
    return next(style for _, _, own, style, _ in parts if own == mark)


def _free(waste: Waste) -> str:
    if not waste.free_blocks:
        return "no free block"
    return f"longest run {waste.longest_free_run} of {waste.free_blocks} free blocks"
