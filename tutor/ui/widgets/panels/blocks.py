"""The KV block pool, the block tables, and llama.cpp's own cells beside the ledger."""

from __future__ import annotations

from typing import ClassVar

from tutor.trace.views import BlockView, LabView
from tutor.ui.widgets.panels.base import Item, Line, Panel, Picture, Run, clip, legend, owner_style, pad


def block_mark(block: BlockView) -> tuple[str, str]:
    """(letter, style) of a block: its owner, `s` when shared, `c` when only cached, `.` when free."""
    if block.ref_cnt > 1:
        return "s", "accent"
    if block.ref_cnt == 1:
        return block.owners[0], owner_style(block.owners[0])
    return ("c", "muted") if block.block_hash else (".", "muted")


class BlocksPanel(Panel):
    """The pool as a grid, one letter a block."""

    TITLE: ClassVar[str] = "KV BLOCKS"
    WHAT: ClassVar[str] = "No block pool yet."

    def picture(self, view: LabView, width: int) -> Picture:
        blocks = view.serving.blocks
        per_row = max(4, min(16, (width - 5) // 2 // 4 * 4))
        lines: list[Line] = []
        items: list[Item] = []
        for start in range(0, len(blocks), per_row):
            runs: list[Run] = [(f"{start:3}  ", "muted")]
            for column, block in enumerate(blocks[start : start + per_row]):
                letter, style = block_mark(block)
                items.append(Item("block", str(block.block_id), 5 + 2 * column, len(lines), 1))
                runs += [(letter, style), (" ", "")]
            lines.append(tuple(runs))
        shared = [f"{b.block_id}:{''.join(b.owners)}" for b in blocks if b.ref_cnt > 1]
        lines += legend("A-Z owner  s shared  c cached, free to take  . free", width)
        if shared:
            lines.append((("shared by  ", "muted"), (clip(" ".join(shared), width - 11), "accent")))
        used = view.serving.num_used_blocks
        note = f"{used}/{len(blocks)} used, {view.serving.block_size} tokens each" if blocks else ""
        return Picture(tuple(lines) if blocks else (), tuple(items), note)


class TablesPanel(Panel):
    """The block table of each running request: place in the request → block in the pool."""

    TITLE: ClassVar[str] = "BLOCK TABLES"
    WHAT: ClassVar[str] = "No request holds blocks."

    def picture(self, view: LabView, width: int) -> Picture:
        serving = view.serving
        shared = {block.block_id for block in serving.blocks if block.ref_cnt > 1}
        lines: list[Line] = []
        items: list[Item] = []
        for request in serving.requests:
            if not request.block_ids:
                continue
            items.append(Item("request", request.request_id, 0, len(lines), 1))
            runs: list[Run] = [(pad(request.label, 2), owner_style(request.label))]
            x = 2
            for place, block_id in enumerate(request.block_ids):
                text = f"{place}→{block_id}"
                if x + len(text) + 1 > width:
                    lines.append(tuple(runs))
                    runs, x = [("  ", "")], 2
                runs += [(text, "accent" if block_id in shared else "text"), (" ", "")]
                items.append(Item("block", str(block_id), x, len(lines), len(text)))
                x += len(text) + 1
            last = request.num_computed_tokens - (len(request.block_ids) - 1) * serving.block_size
            tail = f"last {max(0, last)}/{serving.block_size}"
            runs.append((tail if x + len(tail) <= width else "", "muted"))
            lines.append(tuple(runs))
        return Picture(tuple(lines), tuple(items))


class CellsPanel(Panel):
    """llama.cpp's own cells, and whether the ledger says the same of each."""

    TITLE: ClassVar[str] = "LLAMA.CPP'S CELLS"
    WHAT: ClassVar[str] = "llama.cpp's cell map was not read (knob: cell map)."

    def picture(self, view: LabView, width: int) -> Picture:
        cells = view.serving.cells
        if cells is None:
            return Picture(())
        size = view.serving.block_size or 16
        labels = {slot.slot: slot.label for slot in view.serving.slots}
        blocks_a_row = max(1, (width - 5) // (size + 1))
        ok = cells.num_mismatches == 0
        verdict = f"{cells.num_compared} cells compared with the block tables, {cells.num_mismatches} differ"
        lines: list[Line] = [
            (("✓ " if ok else "✗ ", "good" if ok else "bad"), (clip(verdict, width - 2), "text")),
            *(((clip(text, width), "bad"),) for text in cells.mismatches),
        ]
        for start in range(0, len(cells.cells), size * blocks_a_row):
            runs: list[Run] = [(f"{start:4} ", "muted")]
            for block in range(start, min(start + size * blocks_a_row, len(cells.cells)), size):
                runs += [_cell(owner, labels) for owner in cells.cells[block : block + size]]
                runs.append((" ", ""))
            lines.append(tuple(runs))
        lines += legend("letter: a slot's request  digit: kept for reuse  M several  . empty", width)
        return Picture(tuple(lines), (), f"{sum(map(bool, cells.cells))} of {len(cells.cells)} in use")


def _cell(owner: str, labels: dict[int, str]) -> Run:
    if not owner:
        return ".", "muted"
    slot = owner.partition(":")[0]
    if slot == "M":
        return "M", "accent"
    label = labels.get(int(slot), "")
    return (label, owner_style(label)) if label else (slot[-1], "text")
