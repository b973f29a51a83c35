"""llama.cpp's own map of its KV cells, compared with our ledger.

A context made with `log_cells` logs, at every decode and before it places the tokens: which sequence owns
each cell (`.` empty, an id, `M` several owners), the position in each cell, and each sequence's first and
last position. Ids of two digits make the row of owners ambiguous; the row of positions (five columns a
cell) tells which cells are filled, and the ledger's expectation is tried first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tutor.serving.ledger import CellOwners
from tutor.trace.events import CellMapRead

Key = tuple[int, int]  # block id, offset in the block
Ledger = Mapping[Key, CellOwners]

_HEAD = re.compile(r"find_slot: stream\[\d+\], n = +\d+, used = +(\d+), head = +(\d+), size = +(\d+)")
_SPAN = re.compile(r"find_slot: stream\[\d+\] min\[(\d+)\] = +(\d+), max\[\d+\] = +(\d+)")
_MANY = "M"


@dataclass(frozen=True)
class CellReading:
    """One map. `positions[i]` is -1 for an empty cell; `owners` is the raw row of marks without line ends."""

    used: int
    head: int
    positions: tuple[int, ...]
    owners: str
    spans: Mapping[int, tuple[int, int]]


def parse(lines: Sequence[str]) -> CellReading | None:
    """Read the first map in llama.cpp's log lines; None when there is none."""
    start = next((i for i, line in enumerate(lines) if _HEAD.search(line)), None)
    if start is None:
        return None
    head = _HEAD.search(lines[start])
    assert head is not None
    used, at, size = (int(head.group(i)) for i in (1, 2, 3))
    rows: list[str] = []
    spans: dict[int, tuple[int, int]] = {}
    for line in lines[start + 1 :]:
        if _HEAD.search(line):
            break
        span = _SPAN.search(line)
        if span:
            spans[int(span.group(1))] = (int(span.group(2)), int(span.group(3)))
        elif line.strip():
            rows.append(line.removesuffix(" *"))
    owners, positions = _split_rows(rows, size)
    return CellReading(used, at, positions, owners, spans)


def _split_rows(rows: list[str], size: int) -> tuple[str, tuple[int, ...]]:
    """Marks come in rows of 256 cells without blanks, positions in rows of 64 with five columns each."""
    marks = "".join(row for row in rows if " " not in row.strip())
    cells: list[int] = []
    for row in rows:
        if " " in row.strip():
            cells.extend(-1 if word == "." else int(word) for word in row.split())
    if len(cells) != size:
        raise ValueError(f"llama.cpp's cell map has {len(cells)} positions for {size} cells")
    return marks, tuple(cells)


def split_owners(
    owners: str, positions: Sequence[int], expected: Sequence[str], ids: Collection[int]
) -> list[str]:
    """Cut the row of marks into one mark a cell.

    `ids` are the sequences that hold anything; `expected` decides where two-digit ids leave a choice.
    """
    known = {_MANY, *map(str, ids)}
    marks: list[str] = []
    at = 0
    i = 0
    while i < len(positions):
        if positions[i] < 0:
            marks.append("")
            at += 1
            i += 1
            continue
        end = i
        while end < len(positions) and positions[end] >= 0:
            end += 1
        stop = owners.find(".", at)
        run = owners[at : stop if stop >= 0 else len(owners)]
        marks.extend(_split_run(run, list(expected[i:end]), known))
        at += len(run)
        i = end
    return marks


def _split_run(run: str, expected: list[str], known: set[str]) -> list[str]:
    if "".join(expected) == run:
        return expected
    return _search(run, tuple(expected), known, {}) or ["?"] * len(expected)


def _search(
    run: str, expected: tuple[str, ...], known: set[str], seen: dict[tuple[int, int], list[str] | None]
) -> list[str] | None:
    """A cut of `run` into len(expected) marks from `known`, agreeing with `expected` where it can."""
    key = (len(run), len(expected))
    if key in seen:
        return seen[key]
    seen[key] = None
    if not expected:
        seen[key] = [] if not run else None
        return seen[key]
    widths = [w for w in (len(expected[0]), 1, 2, 3) if 0 < w <= len(run)]
    for width in dict.fromkeys(sorted(widths, key=lambda w: run[:w] != expected[0])):
        mark = run[:width]
        if mark not in known:
            continue
        rest = _search(run[width:], expected[1:], known, seen)
        if rest is not None:
            seen[key] = [mark, *rest]
            break
    return seen[key]


class CellWatcher:
    """Follows each cell from step to step and compares the ledger with llama.cpp's map.

    `ledger()` is what the block tables say now; `table(request_id)` a request's block ids.
    """

    def __init__(
        self, ledger: Callable[[], Ledger], table: Callable[[str], tuple[int, ...]], block_size: int
    ) -> None:
        self._ledger = ledger
        self._table = table
        self._block_size = block_size
        self._known: dict[int, Key] = {}  # cell -> block and offset
        self._placed: list[Key] = []  # what the last decode wrote, in batch order
        self._head = 0
        self.num_compared = 0
        self.num_mismatches = 0

    def expect(self, request_id: str, start: int, num_tokens: int) -> None:
        """Note that the coming decode writes these positions, in batch order."""
        table = self._table(request_id)
        size = self._block_size
        self._placed += [(table[p // size], p % size) for p in range(start, start + num_tokens)]

    def compare(self, lines: Sequence[str], num_new: int) -> CellMapRead | None:
        """Compare the map in `lines` (read before the `num_new` tokens noted last were placed)."""
        reading = parse(lines)
        if reading is None:
            return None
        ledger = self._ledger()
        arrived, self._placed = self._placed[:-num_new], self._placed[-num_new:]
        self._locate(reading, ledger, arrived)
        self._head = reading.head
        event = self._judge(reading, ledger)
        self.num_compared += event.num_compared
        self.num_mismatches += len(event.mismatches)
        return event

    def _locate(self, reading: CellReading, ledger: Ledger, arrived: list[Key]) -> None:
        """Drop cells that the ledger no longer holds; find the cells of the tokens that were just written."""
        filled = reading.positions
        self._known = {
            cell: key
            for cell, key in self._known.items()
            if filled[cell] >= 0 and key in ledger and ledger[key].position == filled[cell]
        }
        mapped = set(self._known.values())
        new = [cell for cell, position in enumerate(filled) if position >= 0 and cell not in self._known]
        keys = [key for key in arrived if key in ledger and key not in mapped]
        # llama.cpp fills free cells upwards from its head, or from 0 when it wrapped around.
        around = sorted(new, key=lambda cell: (cell - self._head) % len(filled))
        for order in (around, new):
            if [ledger[key].position for key in keys] == [filled[cell] for cell in order]:
                self._known.update(zip(order, keys, strict=True))
                return
        self._match_by_owner(new, [key for key in ledger if key not in mapped], reading, ledger)

    def _match_by_owner(self, new: list[int], keys: list[Key], reading: CellReading, ledger: Ledger) -> None:
        """Cells that came another way (restored ones): by position and owner."""
        marks = split_owners(reading.owners, reading.positions, self._marks(reading, ledger), reading.spans)
        waiting: dict[tuple[int, str], list[Key]] = {}
        for key in keys:
            waiting.setdefault((ledger[key].position, _mark(ledger[key])), []).append(key)
        for cell in new:
            candidates = waiting.get((reading.positions[cell], marks[cell]))
            if candidates:
                self._known[cell] = candidates.pop(0)

    def _marks(self, reading: CellReading, ledger: Ledger) -> list[str]:
        """The mark that the ledger expects in each cell; empty where it knows of none."""
        return [
            _mark(ledger[self._known[cell]]) if cell in self._known else ""
            for cell in range(len(reading.positions))
        ]

    def _judge(self, reading: CellReading, ledger: Ledger) -> CellMapRead:
        expected = self._marks(reading, ledger)
        marks = split_owners(reading.owners, reading.positions, expected, reading.spans)
        wrong: list[str] = []
        cells: list[str] = []
        for cell, (mark, position) in enumerate(zip(marks, reading.positions, strict=True)):
            cells.append(f"{mark}:{position}" if position >= 0 else "")
            if position >= 0 and mark != expected[cell]:
                wrong.append(
                    f"cell {cell}: llama.cpp has owner {mark} at position {position}, "
                    f"the ledger {expected[cell] or 'nobody'}"
                )
        lost = set(ledger) - set(self._known.values())
        wrong += [
            f"block {b} offset {o}: the ledger holds it, llama.cpp has no cell" for b, o in sorted(lost)
        ]
        wrong += _compare_spans(reading, ledger)
        blocks = tuple(self._known[i][0] if i in self._known else -1 for i in range(len(cells)))
        filled = sum(position >= 0 for position in reading.positions)
        return CellMapRead(tuple(cells), blocks, filled + len(lost), tuple(wrong))


def _mark(owners: CellOwners) -> str:
    return str(owners.sequences[0]) if len(owners.sequences) == 1 else _MANY


def _compare_spans(reading: CellReading, ledger: Ledger) -> list[str]:
    """Each sequence's first and last position, which also covers the owners behind an `M`."""
    spans: dict[int, tuple[int, int]] = {}
    for owners in ledger.values():
        for seq in owners.sequences:
            low, high = spans.get(seq, (owners.position, owners.position))
            spans[seq] = (min(low, owners.position), max(high, owners.position))
    if spans == dict(reading.spans):
        return []
    return [
        f"sequence {seq}: llama.cpp has positions {reading.spans.get(seq)}, the ledger {spans.get(seq)}"
        for seq in sorted(set(spans) | set(reading.spans))
        if spans.get(seq) != reading.spans.get(seq)
    ]
