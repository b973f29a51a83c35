"""A session: a context that checks and labs drive step by step, with counters of what they spent."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np
from numpy.typing import NDArray

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import BadBatch
from tutor.llama.model import Model

Slots = int | Sequence[int]


class Session:
    """A context with slots. `calls` counts decodes, `tokens` the tokens they computed."""

    def __init__(self, model: Model, config: ContextConfig) -> None:
        self.context = Context(model, config)
        self.n_ctx, self.n_seq = self.context.n_ctx, self.context.n_seq_max
        self.n_batch = self.context.n_batch
        self._batch = Batch(self.n_batch, min(self.n_seq, 16))
        self._n_vocab = model.dims.n_vocab
        self.calls = 0
        self.tokens = 0

    def decode(
        self, tokens: Sequence[int], positions: Sequence[int], slots: Sequence[Slots], want: Sequence[bool]
    ) -> list[NDArray[np.float32] | None]:
        """One decode of entries (token, position, slot or slots, logits wanted?).

        Returns logits, float32 [vocabulary], for wanted entries and None for the others. A decode that fails
        counts nothing. Raises BadBatch, EngineMisuse or NoSpace (the cache is then unchanged).
        """
        if not len(tokens) == len(positions) == len(slots) == len(want):
            raise BadBatch(
                f"There are {len(tokens)} tokens, {len(positions)} positions, {len(slots)} slots and "
                f"{len(want)} marks of wanted logits.",
                "Pass as many of each.",
            )
        self._batch.clear()
        for token, pos, slot, wanted in zip(tokens, positions, slots, want, strict=True):
            if not 0 <= token < self._n_vocab:  # beyond 32 bits the C array would wrap it around
                raise BadBatch(f"There is no token {token}.", f"Ids go from 0 to {self._n_vocab - 1}.")
            lanes = tuple(map(index, slot)) if isinstance(slot, Sequence) else (index(slot),)
            self._batch.add(index(token), index(pos), lanes, bool(wanted))
        self.context.decode(self._batch)
        self.calls += 1
        self.tokens += len(tokens)
        return [self.context.logits(i) if wanted else None for i, wanted in enumerate(want)]

    def seq_rm(self, slot: int, p0: int = -1, p1: int = -1) -> None:
        """Drop positions [p0, p1) of a slot; see kv.seq_rm."""
        kv.seq_rm(self.context, slot, p0, p1)

    def seq_cp(self, source: int, target: int, p0: int = -1, p1: int = -1) -> None:
        """Share (or, in exact mode, copy) cells of a slot; see kv.seq_cp."""
        kv.seq_cp(self.context, source, target, p0, p1)

    def pos_max(self, slot: int) -> int:
        """The last position that a slot holds, -1 when it is empty."""
        return self.context.pos_max(slot)

    def clear(self) -> None:
        """Empty all slots; the counters go on."""
        kv.clear(self.context)

    def save(self, slot: int) -> bytes:
        """K and V of a slot as bytes; see kv.save."""
        return kv.save(self.context, slot)

    def restore(self, slot: int, blob: bytes) -> None:
        """Put saved K and V into a slot; see kv.restore."""
        kv.restore(self.context, slot, blob)

    def close(self) -> None:
        """Free the context."""
        self.context.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
