"""What a check records of the learner's block tables, so that a failure can be replayed step by step.

Each call into the learner's code is one step. Its moves are the same events that the engine records, so the
lab's panels draw them; `compare` adds the tables as they are and as they should be.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tutor.grading.compare import show
from tutor.trace import events as ev
from tutor.trace.store import Recorder, TraceStore

LAB = "failure"
NONE = "–"
Row = tuple[str, str, str]


class MoveRecorder:
    """The moves of one scenario. `file` names the learner's file, `knobs` the exercise and the check.

    num_blocks: ids from 0 up to it are drawn; a table may name others, they are only listed.
    """

    def __init__(
        self, file: str, knobs: dict[str, str], block_size: int, num_blocks: int, seed: int = 0
    ) -> None:
        header = ev.TraceHeader(
            lab=LAB,
            clock="wall",
            provenance="measured",
            model=file,
            block_size=block_size,
            num_blocks=num_blocks,
            seed=seed,
            knobs=dict(knobs),
        )
        self.store = TraceStore(header)
        self._record = Recorder(self.store.append, time.perf_counter)
        self._call = ""
        self._invariant = ""
        self._rows: list[Row] = []

    def request(self, name: str, tokens: int = 0) -> None:
        """A request named by one letter; `tokens` of it are there already."""
        self._record(ev.RequestArrived(name, name, tokens, 0))

    def move(self, call: str) -> None:
        """The next step: a call of the learner's code, as it would be typed."""
        self._record.step += 1
        self._call, self._rows = call, []
        self._record(ev.Noted(call))

    def took(self, name: str, blocks: Iterable[int], tokens: int) -> None:
        """The request holds these blocks, too; all of them hold `tokens` tokens now."""
        ids = tuple(block for block in blocks if self._drawn(block))
        self._record(ev.BlocksAllocated(name, ids, self._call))
        share = ev.ScheduledTokens(name, 0, 0, tokens, "prefill", f"{tokens} tokens after {self._call}")
        self._record(ev.StepScheduled((share,), 1, 0, tokens, self._call))

    def shares(self, name: str, source: str, blocks: Iterable[int], tokens: int) -> None:
        """The request holds these blocks together with another one."""
        ids = tuple(block for block in blocks if self._drawn(block))
        self._record(ev.PrefixMatched(name, source, tokens, ids))

    def copied(self, name: str, source: int, target: int, tokens: int) -> None:
        """The learner's code asked for a copy of a block."""
        self._record(ev.BlockCopied(name, source, target, tokens, self._call))

    def compare(self, invariant: str, rows: Iterable[tuple[str, Any, Any]]) -> None:
        """What must hold after this call, in words, and (what, expected, got) for each thing compared."""
        fresh = [(what, _text(right), _text(mine)) for what, right, mine in rows]
        self._invariant = invariant
        self._rows += fresh
        holds = all(right == mine for _, right, mine in fresh)
        self._record(ev.TablesCompared(self._call, invariant, tuple(self._rows), holds))

    def failed(self, where: str, expected: str, actual: str) -> None:
        """The check failed here; what it said is added unless a comparison shows it already."""
        if any(right != mine for _, right, mine in self._rows):
            return
        row = (where or "this check", expected or NONE, actual or NONE)
        rows = (*self._rows, *([row] if expected or actual else []))
        self._record(ev.TablesCompared(self._call, self._invariant or "The check failed.", rows, False))

    def _drawn(self, block: int) -> bool:
        return 0 <= block < self.store.header.num_blocks


def table_rows(name: str, expected: Sequence[Any], actual: Any) -> list[tuple[str, Any, Any]]:
    """One row an entry of a block table; – where one of the two has ended."""
    mine = list(actual) if isinstance(actual, (list, tuple, np.ndarray)) else None
    if mine is None:
        return [(name, list(expected), actual)]
    pairs = itertools.zip_longest(expected, mine, fillvalue=NONE)
    return [(f"{name}[{index}]", right, got) for index, (right, got) in enumerate(pairs)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else show(value, 60)
