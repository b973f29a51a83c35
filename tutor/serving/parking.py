"""Keeping cached blocks alive: a sequence id of its own for every block that no request holds any more.

llama.cpp frees a cell when no sequence owns it. A cached block is therefore *parked*: one of the sequence ids
after those of the slots owns its cells until it is matched again or evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.errors import ensure
from tutor.serving.outputs import KVOperation, SeqClear, SeqKeep
from tutor.serving.tracing import Tracer


class Parking:
    """Hands out the sequence ids first..first + count - 1; operations are appended to the shared list."""

    def __init__(
        self,
        pool: BlockPool,
        operations: list[KVOperation],
        tracer: Tracer,
        *,
        first: int,
        count: int,
        size: int,
    ) -> None:
        self._pool = pool
        self._operations = operations
        self._tell = tracer
        self._size = size
        self._count = count
        self._free = list(range(first + count - 1, first - 1, -1))

    def park(self, blocks: Sequence[KVCacheBlock], slot: int) -> None:
        """Keep the cells of newly cached blocks beyond `slot`; the least recently used may have to go."""
        missing = len(blocks) - len(self._free)
        if missing > 0:
            parked = (block for block in self._pool.cached() if block.park is not None)
            self.evict(list(islice(parked, missing)), "its sequence id is needed for a newer block")
        kept, homeless = blocks[: len(self._free)], blocks[len(self._free) :]
        pairs = []
        for block in kept:
            block.park = self._free.pop()
            pairs.append((block.park, block.index * self._size))
        if pairs:
            self._operations.append(SeqKeep(slot, pairs, self._size))
        if homeless:
            self.evict(homeless, "no sequence id is left to keep it")

    def unpark(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Somebody else holds the cells now, or nobody shall."""
        parks = []
        for block in blocks:
            if block.park is not None:
                parks.append(block.park)
                block.park = None
        if parks:
            self._operations.append(SeqClear(parks))
            self._free += parks

    def evict(self, blocks: Sequence[KVCacheBlock], reason: str) -> None:
        """Forget the content of cached (or just taken) blocks."""
        self._tell.evicted(blocks, reason)
        self.unpark(blocks)
        self._pool.forget(blocks)

    def check_integrity(self) -> None:
        parked = [block.park for block in self._pool.blocks if block.park is not None]
        ensure(len(parked) + len(self._free) == self._count, "parked + free ids != all ids")
        ensure(len(set(parked)) == len(parked), "two blocks share a sequence id")
        cached = sum(1 for _ in self._pool.cached())
        ensure(len(parked) == cached, f"{cached} blocks are cached, {len(parked)} are parked")
