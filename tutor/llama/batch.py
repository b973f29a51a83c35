"""The batch: which tokens one decode computes, at which positions, for which slots.

The arrays of the C struct are ours, so that adding a token is a few array writes. What can be checked while
adding is checked here (positions without a gap, capacity); what needs the cache, `Context.decode` checks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tutor.llama import library
from tutor.llama.errors import BadBatch

MAX_SLOTS_PER_TOKEN = 16
NO_IDS = (2**31 - 1, -1)  # lowest and highest of none


class Batch:
    """Up to `capacity` tokens. One token may belong to several slots at once in a shared context.

    `spans` maps a slot to [its first position, the one after its last]; `wanted` lists the indices whose
    logits were asked for, in rising order.
    """

    def __init__(self, capacity: int, slots_per_token: int = MAX_SLOTS_PER_TOKEN) -> None:
        if capacity < 1 or slots_per_token < 1:
            raise BadBatch("A batch needs room for one token at least.", "Ask for a larger capacity.")
        self.capacity = capacity
        self._width = slots_per_token
        self._size = 0
        self.spans: dict[int, list[int]] = {}
        self.wanted: list[int] = []
        self.most_slots = 0  # of any one token
        self.lowest, self.highest = NO_IDS  # of the token ids
        self._token = (ctypes.c_int32 * capacity)()
        self._pos = (ctypes.c_int32 * capacity)()
        self._counts = (ctypes.c_int32 * capacity)()
        self._logits = (ctypes.c_int8 * capacity)()
        self._slots = (ctypes.c_int32 * (capacity * slots_per_token))()
        self._struct = self._make_struct()

    def _make_struct(self) -> Any:
        lib = library.load()
        row = ctypes.POINTER(ctypes.c_int32)
        start, stride = ctypes.addressof(self._slots), 4 * self._width
        self._rows = (row * self.capacity)(
            *(ctypes.cast(start + i * stride, row) for i in range(self.capacity))
        )
        return lib.llama_batch(
            n_tokens=0,
            token=ctypes.cast(self._token, ctypes.POINTER(ctypes.c_int32)),
            embd=None,
            pos=ctypes.cast(self._pos, ctypes.POINTER(ctypes.c_int32)),
            n_seq_id=ctypes.cast(self._counts, ctypes.POINTER(ctypes.c_int32)),
            seq_id=ctypes.cast(self._rows, ctypes.POINTER(row)),
            logits=ctypes.cast(self._logits, ctypes.POINTER(ctypes.c_int8)),
        )

    def __len__(self) -> int:
        return self._size

    def clear(self) -> None:
        """Forget all tokens; the memory stays."""
        self._size = self.most_slots = 0
        self.lowest, self.highest = NO_IDS
        self.spans.clear()
        self.wanted.clear()

    def add(self, token: int, pos: int, slots: Sequence[int], want_logits: bool) -> int:
        """Append a token; return its index. Raises BadBatch (full, no slot, a gap in the positions)."""
        index, count = self._size, len(slots)
        if index == self.capacity:
            raise BadBatch(f"The batch is full ({self.capacity} tokens).", "Decode it, or make it larger.")
        if not 0 < count <= self._width:
            raise BadBatch(f"A token needs 1 to {self._width} slots, not {count}.", "Name its slots.")
        if count > 1 and len(set(slots)) != count:
            raise BadBatch("A token names the same slot twice.", "Name each slot once.")
        spans = self.spans
        for slot in slots:
            span = spans.get(slot)
            if span is not None and span[1] != pos:
                raise BadBatch(
                    f"Slot {slot}: position {pos} follows position {span[1] - 1}.",
                    "Add the tokens of a slot in order, without a gap.",
                )
        at = index * self._width
        for slot in slots:
            self._slots[at] = slot
            at += 1
            span = spans.get(slot)
            if span is None:
                spans[slot] = [pos, pos + 1]
            else:
                span[1] = pos + 1
        if token < self.lowest:
            self.lowest = token
        if token > self.highest:
            self.highest = token
        self._token[index] = token
        self._pos[index] = pos
        self._counts[index] = count
        self._logits[index] = want_logits
        if want_logits:
            self.wanted.append(index)
        if count > self.most_slots:
            self.most_slots = count
        self._size = index + 1
        return index

    def add_run(self, tokens: Sequence[int], pos: int, slot: int, want_last: bool) -> int:
        """Append a run of tokens of one slot from position `pos` on; return the last index."""
        slots, last = (slot,), len(tokens) - 1
        index = -1
        for offset, token in enumerate(tokens):
            index = self.add(token, pos + offset, slots, want_last and offset == last)
        return index

    def struct(self) -> Any:
        """The C struct for one decode call; the batch has to outlive the call."""
        self._struct.n_tokens = self._size
        return self._struct
