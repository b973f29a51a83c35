"""Keeping cached blocks alive: a sequence id of its own for every block that no request holds any more.

llama.cpp frees a cell when no sequence owns it. A cached block is therefore *parked*: one of the sequence ids
after those of the slots owns its cells until it is matched again or evicted.
"""

from __future__ import annotations

from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.errors import ensure
from tutor.serving.outputs import KVOperation, SeqCopy, SeqRemove
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

    def park(self, block: KVCacheBlock, slot: int) -> None:
        """Keep a cached block's cells beyond `slot`; the least recently used block may have to go for it."""
        if not self._free:
            oldest = next((b for b in self._pool.cached() if b.park is not None), None)
            if oldest is None:
                self.evict(block, "no sequence id is left to keep it")
                return
            self.evict(oldest, "its sequence id is needed for a newer block")
        block.park = self._free.pop()
        start = block.index * self._size
        self._operations.append(SeqCopy(slot, block.park, start, start + self._size))

    def unpark(self, block: KVCacheBlock) -> None:
        """Somebody else holds the cells now, or nobody shall."""
        if block.park is not None:
            self._operations.append(SeqRemove(block.park))
            self._free.append(block.park)
            block.park = None

    def evict(self, block: KVCacheBlock, reason: str) -> None:
        """Forget a cached block's content."""
        self._tell.evicted(block, reason)
        self.unpark(block)
        self._pool.forget(block)

    def check_integrity(self) -> None:
        parked = [block.park for block in self._pool.blocks if block.park is not None]
        ensure(len(parked) + len(self._free) == self._count, "parked + free ids != all ids")
        ensure(len(set(parked)) == len(parked), "two blocks share a sequence id")
        cached = sum(1 for _ in self._pool.cached())
        ensure(len(parked) == cached, f"{cached} blocks are cached, {len(parked)} are parked")
