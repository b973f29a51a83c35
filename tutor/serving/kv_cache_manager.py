"""Who holds which KV blocks: block tables, sharing of prefixes, and the sequence operations that follow.

The tables are a ledger over llama.cpp's sequence operations: sharing a block is `SeqCopy`, giving one up
is `SeqRemove`. A cached block that no request holds is *parked*: a sequence id of its own keeps its cells
alive until it is matched again or evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ensure
from tutor.serving.outputs import KVOperation, SeqCopy, SeqRemove
from tutor.serving.prefix_cache import ROOT, block_hash, chain
from tutor.serving.request import Request
from tutor.trace import events as ev

Emit = Callable[[ev.AnyEvent], None]


@dataclass
class BlockTable:
    """A request's blocks in logical order: position p lives in `blocks[p // block_size]`."""

    blocks: list[KVCacheBlock] = field(default_factory=list)
    num_stored: int = 0  # leading blocks that are full and were offered to the prefix cache


@dataclass(frozen=True)
class CellOwners:
    """What the ledger says of one written cell: its position and the sequences that own it."""

    position: int
    sequences: tuple[int, ...]


class KVCacheManager:
    """Allocates, shares and frees blocks. Every change is emitted with its reason."""

    def __init__(self, config: EngineConfig, emit: Emit) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self._emit = emit
        self._tables: dict[str, BlockTable] = {}
        self._requests: dict[str, Request] = {}
        self._operations: list[KVOperation] = []
        last = config.num_sequences
        self._free_parks = list(range(last - 1, config.max_num_seqs - 1, -1))

    # --- questions ------------------------------------------------------------------------------

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.config.block_size)

    def table(self, request_id: str) -> tuple[int, ...]:
        """The block ids of a request in logical order (empty if it holds none)."""
        table = self._tables.get(request_id)
        return tuple(block.block_id for block in table.blocks) if table else ()

    def match(self, request: Request) -> list[KVCacheBlock]:
        """Longest cached prefix in full blocks. The newest token is never matched: its logits are needed."""
        if not self.config.prefix_caching:
            return []
        size = self.config.block_size
        tokens = request.token_ids(0, request.num_tokens - 1)
        found: list[KVCacheBlock] = []
        for i, key in enumerate(chain(tokens, size)):
            block = self.pool.find(key)
            if block is None or block.token_ids != tuple(tokens[i * size : (i + 1) * size]):
                break
            found.append(block)
        return found

    def can_allocate(self, request: Request, num_new: int, matched: list[KVCacheBlock] | None = None) -> bool:
        """Whether `num_new` more tokens fit, counting matched blocks that must leave the free queue."""
        matched = matched or []
        have = len(self._tables[request.request_id].blocks) if request.request_id in self._tables else 0
        computed = request.num_computed_tokens + len(matched) * self.config.block_size
        needed = self.blocks_for(computed + num_new) - have - len(matched)
        return needed <= self.pool.num_free - sum(block.ref_cnt == 0 for block in matched)

    # --- changes --------------------------------------------------------------------------------

    def take_operations(self) -> tuple[KVOperation, ...]:
        """The sequence operations since the last call, in order."""
        operations = tuple(self._operations)
        self._operations.clear()
        return operations

    def share_prefix(self, request: Request, matched: list[KVCacheBlock]) -> int:
        """Give `request` (which has a slot) the matched blocks; returns the number of cached tokens."""
        assert request.slot is not None
        table = self._tables.setdefault(request.request_id, BlockTable())
        self._requests[request.request_id] = request
        size = self.config.block_size
        sources: list[str] = []
        for block in matched:
            source = self._sequence_holding(block, sources)
            self._operations.append(
                SeqCopy(source, request.slot, block.index * size, (block.index + 1) * size)
            )
            self.pool.share(block)
            self._unpark(block)
            table.blocks.append(block)
        table.num_stored = len(matched)
        if matched:
            ids = tuple(block.block_id for block in matched)
            names = ", ".join(dict.fromkeys(sources))
            self._emit(ev.PrefixMatched(request.request_id, names, len(ids) * size, ids))
        return len(matched) * size

    def allocate(self, request: Request, num_new: int) -> None:
        """Add the blocks that `num_new` more tokens need; ask `can_allocate` first."""
        table = self._tables.setdefault(request.request_id, BlockTable())
        self._requests[request.request_id] = request
        needed = self.blocks_for(request.num_computed_tokens + num_new) - len(table.blocks)
        taken: list[int] = []
        for _ in range(needed):
            if self.pool.peek_free().block_hash:
                self._evict(self.pool.peek_free(), f"{request.label or request.request_id} needs a block")
            block = self.pool.take()
            block.index = len(table.blocks)
            table.blocks.append(block)
            taken.append(block.block_id)
        if taken:
            reason = f"{request.num_computed_tokens} + {num_new} tokens need {len(table.blocks)} blocks"
            self._emit(ev.BlocksAllocated(request.request_id, tuple(taken), reason))

    def store_full_blocks(self, request: Request) -> None:
        """Offer blocks that became full to the prefix cache; call after `num_computed_tokens` moved."""
        if not self.config.prefix_caching:
            return
        table = self._tables[request.request_id]
        size = self.config.block_size
        while (table.num_stored + 1) * size <= request.num_computed_tokens:
            i = table.num_stored
            parent = self._hash_of(request, table, i)
            tokens = tuple(request.token_ids(i * size, (i + 1) * size))
            key = block_hash(parent, tokens)
            if self.pool.store(table.blocks[i], key, parent, tokens):
                self._emit(ev.BlockStored(table.blocks[i].block_id, key, parent))
            table.num_stored += 1

    def free(self, request: Request, reason: str) -> None:
        """Give all blocks back, tails first, and clear the request's lane."""
        table = self._tables.pop(request.request_id, None)
        self._requests.pop(request.request_id, None)
        if table is None:
            return
        assert request.slot is not None
        released: list[int] = []
        size = self.config.block_size
        for block in reversed(table.blocks):
            if not self.pool.release(block):
                continue
            released.append(block.block_id)
            if block.block_hash and self._park(block):
                assert block.park is not None
                self._operations.append(
                    SeqCopy(request.slot, block.park, block.index * size, (block.index + 1) * size)
                )
        self._operations.append(SeqRemove(request.slot))
        ids = tuple(block.block_id for block in table.blocks)
        self._emit(ev.BlocksFreed(request.request_id, ids, tuple(released), reason))

    # --- parking and eviction -------------------------------------------------------------------

    def _park(self, block: KVCacheBlock) -> bool:
        """Give a cached block a sequence id of its own; the least recently used one may have to go."""
        if not self._free_parks:
            victims = (b for b in self.pool.cached_in_eviction_order() if b.park is not None)
            victim = next(victims, None)
            if victim is None:
                self._evict(block, "no sequence id is left to keep it")
                return False
            self._evict(victim, "its sequence id is needed for a newer block")
        block.park = self._free_parks.pop()
        return True

    def _unpark(self, block: KVCacheBlock) -> None:
        if block.park is not None:
            self._operations.append(SeqRemove(block.park))
            self._free_parks.append(block.park)
            block.park = None

    def _evict(self, block: KVCacheBlock, reason: str) -> None:
        self._emit(ev.BlockEvicted(block.block_id, block.block_hash, reason))
        self._unpark(block)
        self.pool.forget(block)

    def _sequence_holding(self, block: KVCacheBlock, sources: list[str]) -> int:
        """A sequence that owns the block's cells: its park, or the slot of a request that holds it."""
        if block.park is not None:
            sources.append("the cache")
            return block.park
        for request_id, table in self._tables.items():
            request = self._requests[request_id]
            holds = block.index < len(table.blocks) and table.blocks[block.index] is block
            if holds and request.slot is not None:
                sources.append(request.label or request_id)
                return request.slot
        raise AssertionError(f"block {block.block_id} is stored but nobody holds its cells")

    def _hash_of(self, request: Request, table: BlockTable, i: int) -> str:
        """Hash of the prefix before block i; a duplicate of another request's block carries none itself."""
        if i == 0:
            return ROOT
        if table.blocks[i - 1].block_hash:
            return table.blocks[i - 1].block_hash
        return chain(request.token_ids(0, i * self.config.block_size), self.config.block_size)[-1]

    # --- the ledger -----------------------------------------------------------------------------

    def ledger(self) -> dict[tuple[int, int], CellOwners]:
        """Every written cell, by (block_id, offset), with its position and owners, before the next step."""
        size = self.config.block_size
        owners: dict[tuple[int, int], list[int]] = {}
        for request_id, table in self._tables.items():
            request = self._requests[request_id]
            assert request.slot is not None
            for position in range(request.num_computed_tokens):
                block = table.blocks[position // size]
                owners.setdefault((block.block_id, position % size), []).append(request.slot)
        for block in self.pool.blocks:
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
        entries = sum(len(table.blocks) for table in self._tables.values())
        counts = sum(block.ref_cnt for block in self.pool.blocks)
        ensure(entries == counts, f"tables have {entries} entries, reference counts sum to {counts}")
        for request_id, table in self._tables.items():
            ids = [block.block_id for block in table.blocks]
            ensure(len(ids) == len(set(ids)), f"{request_id} holds a block twice: {ids}")
            fits = self._requests[request_id].num_computed_tokens <= len(ids) * self.config.block_size
            ensure(fits, f"{request_id} has computed tokens without a block")
            for i, block in enumerate(table.blocks):
                ensure(block.index == i, f"block {block.block_id} has index {block.index}, table place {i}")
        parked = [block.park for block in self.pool.blocks if block.park is not None]
        total = self.config.num_sequences - self.config.max_num_seqs
        ensure(len(parked) + len(self._free_parks) == total, "parked + free parks != all parks")
        ensure(len(set(parked)) == len(parked), "two blocks share a park")
        for block in self.pool.blocks:
            cached = block.ref_cnt == 0 and bool(block.block_hash)
            ensure(
                (block.park is not None) == cached,
                f"block {block.block_id}: parked but not cached, or reverse",
            )
