"""Who holds which KV blocks: block tables, sharing of prefixes, and the sequence operations that follow.

The tables are a ledger over llama.cpp's sequence operations: sharing a block is `SeqCopy`, giving one up
is `SeqRemove`. A cached block that no request holds is *parked*: a sequence id of its own keeps its cells
alive until it is matched again or evicted.
"""

from __future__ import annotations

from dataclasses import dataclass

from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ensure
from tutor.serving.outputs import KVOperation, SeqCopy, SeqRemove
from tutor.serving.prefix_cache import block_hash, chain, root_hash
from tutor.serving.request import Request
from tutor.serving.tracing import Tracer


@dataclass(frozen=True, slots=True)
class CellOwners:
    """What the ledger says of one written cell: its position and the sequences that own it."""

    position: int
    sequences: tuple[int, ...]


class KVCacheManager:
    """Allocates, shares and frees blocks; every change goes to the tracer with its reason."""

    def __init__(self, config: EngineConfig, tracer: Tracer) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self._tell = tracer
        self._size = config.block_size
        self._holders: dict[str, Request] = {}
        self._operations: list[KVOperation] = []
        self._free_parks = list(range(config.num_sequences - 1, config.max_num_seqs - 1, -1))

    # --- questions ------------------------------------------------------------------------------

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold that many tokens."""
        return -(-num_tokens // self._size)

    def table(self, request_id: str) -> tuple[int, ...]:
        """The block ids of a request in logical order (empty if it holds none)."""
        holder = self._holders.get(request_id)
        return tuple(block.block_id for block in holder.block_table) if holder else ()

    def match(self, request: Request) -> list[KVCacheBlock]:
        """Longest cached prefix in full blocks. The newest token is never matched: its logits are needed."""
        found: list[KVCacheBlock] = []
        if self.config.prefix_caching:
            for key, tokens in chain(request.token_ids[:-1], self._size, request.cache_salt):
                block = self.pool.find(key, tokens)
                if block is None:
                    break
                found.append(block)
        return found

    def has_room(self, request: Request, num_new: int) -> bool:
        """Whether the blocks that a running request holds suffice for `num_new` more tokens."""
        return request.num_computed_tokens + num_new <= len(request.block_table) * self._size

    def can_allocate(self, request: Request, num_new: int, matched: list[KVCacheBlock] | None = None) -> bool:
        """Whether `num_new` more tokens fit, counting matched blocks that must leave the free queue."""
        held = matched if matched is not None else request.block_table
        computed = len(held) * self._size if matched is not None else request.num_computed_tokens
        needed = self.blocks_for(computed + num_new) - len(held)
        free = self.pool.num_free
        if matched:
            free -= sum(block.ref_cnt == 0 for block in matched)
        return needed <= free

    # --- changes --------------------------------------------------------------------------------

    def take_operations(self) -> list[KVOperation]:
        """The sequence operations since the last call, in order."""
        operations, self._operations = self._operations, []
        return operations

    def share_prefix(self, request: Request, matched: list[KVCacheBlock]) -> int:
        """Give `request` (which has a slot) the matched blocks; returns the number of cached tokens."""
        assert request.slot is not None and not request.block_table
        self._holders[request.request_id] = request
        sources: list[str] = []
        for block in matched:
            start = block.index * self._size
            source = self._sequence_holding(block, sources)
            self._operations.append(SeqCopy(source, request.slot, start, start + self._size))
            self.pool.share(block)
            self._unpark(block)
            request.block_table.append(block)
        request.num_stored_blocks = len(matched)
        self._tell.matched(request, matched, sources, self._size)
        return len(matched) * self._size

    def allocate(self, request: Request, num_new: int) -> None:
        """Add the blocks that `num_new` more tokens need; ask `can_allocate` first."""
        table = request.block_table
        taken: list[KVCacheBlock] = []
        for _ in range(self.blocks_for(request.num_computed_tokens + num_new) - len(table)):
            block = self.pool.take()
            if block.block_hash:
                self._evict(block, f"{request.name} needs a block")
            block.index = len(table)
            table.append(block)
            taken.append(block)
        if taken:
            self._tell.allocated(request, taken, num_new)

    def store_full_blocks(self, request: Request) -> None:
        """Offer blocks that became full to the prefix cache; call after `num_computed_tokens` moved."""
        if not self.config.prefix_caching:
            return
        size = self._size
        while (request.num_stored_blocks + 1) * size <= request.num_computed_tokens:
            i = request.num_stored_blocks
            block = request.block_table[i]
            parent = self._parent_hash(request, i)
            tokens = tuple(request.token_ids[i * size : (i + 1) * size])
            if self.pool.store(block, block_hash(parent, tokens), parent, tokens):
                self._tell.stored(block)
            request.num_stored_blocks = i + 1

    def free(self, request: Request, reason: str) -> None:
        """Give all blocks back, tails first, and clear the request's lane."""
        if self._holders.pop(request.request_id, None) is None:
            return
        assert request.slot is not None
        released: list[int] = []
        for block in reversed(request.block_table):
            if self.pool.release(block):
                released.append(block.block_id)
                if block.block_hash:
                    self._park(block, request.slot)
        self._operations.append(SeqRemove(request.slot))
        self._tell.freed(request, released, reason)
        request.block_table.clear()
        request.num_stored_blocks = 0

    # --- parking and eviction -------------------------------------------------------------------

    def _park(self, block: KVCacheBlock, slot: int) -> None:
        """Give a cached block a sequence id of its own; the least recently used one may have to go."""
        if not self._free_parks:
            oldest = next((b for b in self.pool.cached() if b.park is not None), None)
            if oldest is None:
                self._evict(block, "no sequence id is left to keep it")
                return
            self._evict(oldest, "its sequence id is needed for a newer block")
        block.park = self._free_parks.pop()
        start = block.index * self._size
        self._operations.append(SeqCopy(slot, block.park, start, start + self._size))

    def _unpark(self, block: KVCacheBlock) -> None:
        if block.park is not None:
            self._operations.append(SeqRemove(block.park))
            self._free_parks.append(block.park)
            block.park = None

    def _evict(self, block: KVCacheBlock, reason: str) -> None:
        self._tell.evicted(block, reason)
        self._unpark(block)
        self.pool.forget(block)

    def _sequence_holding(self, block: KVCacheBlock, sources: list[str]) -> int:
        """A sequence that owns the block's cells: its park, or the slot of a request that holds it."""
        if block.park is not None:
            sources.append("the cache")
            return block.park
        for holder in self._holders.values():
            table = holder.block_table
            if block.index < len(table) and table[block.index] is block and holder.slot is not None:
                sources.append(holder.name)
                return holder.slot
        raise AssertionError(f"{block} is stored but nobody holds its cells")

    def _parent_hash(self, request: Request, i: int) -> int:
        """Hash of the prefix before block i; a duplicate of another request's block carries none itself."""
        if i == 0:
            return root_hash(request.cache_salt)
        before = request.block_table[i - 1].block_hash
        return before or chain(request.token_ids[: i * self._size], self._size, request.cache_salt)[-1][0]

    # --- the ledger -----------------------------------------------------------------------------

    def ledger(self) -> dict[tuple[int, int], CellOwners]:
        """Every written cell, by (block_id, offset), with its position and owners, before the next step."""
        size = self._size
        owners: dict[tuple[int, int], list[int]] = {}
        for holder in self._holders.values():
            assert holder.slot is not None
            for position in range(holder.num_computed_tokens):
                block = holder.block_table[position // size]
                owners.setdefault((block.block_id, position % size), []).append(holder.slot)
        for block in self.pool.cached():
            if block.park is not None:
                for offset in range(size):
                    owners.setdefault((block.block_id, offset), []).append(block.park)
        return {
            (block_id, offset): CellOwners(
                self.pool.blocks[block_id].index * size + offset, tuple(sorted(sequences))
            )
            for (block_id, offset), sequences in owners.items()
        }

    def check_integrity(self) -> None:
        self.pool.check_integrity()
        entries = sum(len(holder.block_table) for holder in self._holders.values())
        counts = sum(block.ref_cnt for block in self.pool.blocks)
        ensure(entries == counts, f"tables have {entries} entries, reference counts sum to {counts}")
        for name, holder in self._holders.items():
            ids = [block.block_id for block in holder.block_table]
            ensure(len(ids) == len(set(ids)), f"{name} holds a block twice: {ids}")
            ensure(holder.num_computed_tokens <= len(ids) * self._size, f"{name} has tokens without a block")
            for i, block in enumerate(holder.block_table):
                ensure(block.index == i, f"{block} stands at place {i} of {name}'s table")
        parked = [block.park for block in self.pool.blocks if block.park is not None]
        total = self.config.num_sequences - self.config.max_num_seqs
        ensure(len(parked) + len(self._free_parks) == total, "parked + free parks != all parks")
        ensure(len(set(parked)) == len(parked), "two blocks share a park")
        cached = sum(1 for _ in self.pool.cached())
        ensure(len(parked) == cached, f"{cached} blocks are cached, {len(parked)} are parked")
