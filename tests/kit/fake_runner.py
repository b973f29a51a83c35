"""A model runner over a modelled KV cache that enforces llama.cpp's rules.

The "model" is a hash of every (position, token) that a lane can see, so a wrong, missing or stale cell
changes the next token: any mistake of the ledger shows as different output.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence

from tutor.serving.outputs import (
    KVOperation,
    ModelRunnerOutput,
    ScheduledRequest,
    SchedulerOutput,
    SeqArchive,
    SeqClear,
    SeqCopy,
    SeqDrop,
    SeqKeep,
    SeqLoad,
    SeqRemove,
    SeqRestore,
    SeqSave,
)

VOCABULARY = 50


class FakeRunner:
    def __init__(self, num_cells: int) -> None:
        self.num_cells = num_cells
        self.cells: dict[int, tuple[int, int, set[int]]] = {}  # cell -> position, token, sequences
        self.saved: dict[str, list[tuple[int, int]]] = {}  # swapped out
        self.archive: Callable[[list[int], str, bool, bytes], None] | None = None
        self.clock = 0.0
        self.num_steps = 0

    def now(self) -> float:
        return self.clock

    def piece(self, token_id: int) -> bytes:
        return bytes([97 + token_id % 26])

    def apply(self, operations: Sequence[KVOperation]) -> None:
        for op in operations:
            if isinstance(op, SeqKeep):
                self.apply([SeqCopy(op.src, park, start, start + op.size) for park, start in op.parts])
            elif isinstance(op, SeqClear):
                self.apply([SeqRemove(seq) for seq in op.seqs])
            elif isinstance(op, SeqSave):
                self.saved[op.key] = self.visible(op.seq)
            elif isinstance(op, SeqArchive):
                if self.archive is not None:
                    self.archive(op.token_ids, op.salt, op.lossy, pickle.dumps(self.visible(op.seq)))
            elif isinstance(op, SeqLoad):
                assert not self.positions(op.seq)
                free = iter(sorted(set(range(self.num_cells)) - set(self.cells)))
                for position, token in pickle.loads(op.blob)[: op.num_tokens]:
                    self.cells[next(free)] = (position, token, {op.seq})
            elif isinstance(op, SeqDrop):
                del self.saved[op.key]
            elif isinstance(op, SeqRestore):
                assert not self.positions(op.seq)
                free = iter(sorted(set(range(self.num_cells)) - set(self.cells)))
                for position, token in self.saved.pop(op.key):
                    self.cells[next(free)] = (position, token, {op.seq})
            for cell, (position, _, owners) in list(self.cells.items()):
                if isinstance(op, SeqCopy):
                    if op.src in owners and op.start <= position < op.end:
                        owners.add(op.dst)
                elif isinstance(op, SeqRemove) and op.seq in owners and position >= op.start:
                    owners.discard(op.seq)
                    if not owners:
                        del self.cells[cell]

    def positions(self, seq: int) -> list[int]:
        return sorted(position for position, _, owners in self.cells.values() if seq in owners)

    def visible(self, seq: int) -> list[tuple[int, int]]:
        return sorted((p, token) for p, token, owners in self.cells.values() if seq in owners)

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        self.apply(output.operations)
        free = iter(sorted(set(range(self.num_cells)) - set(self.cells)))
        sampled: dict[str, list[int]] = {}
        for share in output.scheduled:
            assert self.positions(share.slot) == list(range(share.start)), (
                "positions have a gap or stale cells"
            )
            for offset, token in enumerate(share.token_ids):
                self.cells[next(free)] = (share.start + offset, token, {share.slot})
            if share.samples:
                sampled[share.request_id] = self.verify(share)
        self.clock += 1.0
        self.num_steps += 1
        return ModelRunnerOutput(sampled, 1.0)

    def verify(self, share: ScheduledRequest) -> list[int]:
        """Accepted drafts and the token after them."""
        drafts = share.token_ids[len(share.token_ids) - share.num_drafts :]
        known = share.start + len(share.token_ids) - len(drafts)
        new: list[int] = []
        for i, draft in enumerate([*drafts, None]):
            seen = [(p, token) for p, token in self.visible(share.slot) if p < known + i]
            new.append(self.next_token(seen))
            if new[-1] != draft:
                break
        return new

    @staticmethod
    def next_token(visible: list[tuple[int, int]]) -> int:
        digest = hashlib.sha256(repr(visible).encode()).digest()
        return int.from_bytes(digest[:4], "little") % VOCABULARY

    @classmethod
    def solo(cls, prompt: list[int], max_tokens: int, stop: frozenset[int] = frozenset()) -> list[int]:
        """What a request must produce whatever else runs beside it."""
        tokens = list(prompt)
        for _ in range(max_tokens):
            tokens.append(cls.next_token(list(enumerate(tokens))))
            if tokens[-1] in stop:
                break
        return tokens[len(prompt) :]
