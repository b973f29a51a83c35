"""Who holds which KV blocks: block tables, sharing of prefixes, and the sequence operations that follow.

The tables are a ledger over llama.cpp's sequence operations: sharing a block is `SeqCopy`, giving one up
is `SeqRemove`.
"""

from __future__ import annotations

from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ensure
from tutor.serving.ledger import CellOwners, cell_owners
from tutor.serving.outputs import (
    KVOperation,
    SeqArchive,
    SeqCopy,
    SeqDrop,
    SeqLoad,
    SeqRemove,
    SeqRestore,
    SeqSave,
)
from tutor.serving.parking import Parking
from tutor.serving.prefix_cache import Link, extend_chain
from tutor.serving.request import Request
from tutor.serving.tiering import Loadable
from tutor.serving.tracing import Tracer


class KVCacheManager:
    """Allocates, shares and frees blocks; every change goes to the tracer with its reason."""

    def __init__(self, config: EngineConfig, tracer: Tracer) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self._tell = tracer
        self._size = config.block_size
        self._holders: dict[str, Request] = {}
        self._computing: dict[int, str] = {}  # block hash -> who computes that prefix right now
        self._operations: list[KVOperation] = []
        self._parking = Parking(
            self.pool, self._operations, tracer, size=config.block_size,
            first=config.max_num_seqs, count=config.num_sequences - config.max_num_seqs,
        )  # fmt: skip

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
        if not self.config.prefix_caching:
            return []
        return self.pool.find(self._links(request)[: (request.num_tokens - 1) // self._size])

    def computed_by(self, request: Request, num_matched: int) -> str | None:
        """Who is computing the block that follows the matched prefix right now, if anybody."""
        if not self.config.prefix_caching or num_matched >= (request.num_tokens - 1) // self._size:
            return None
        return self._computing.get(self._links(request)[num_matched][0])

    def full_blocks(self, parent: Request, num_tokens: int) -> list[KVCacheBlock]:
        """The blocks of `parent` that its first `num_tokens` tokens fill."""
        return parent.block_table[: num_tokens // self._size]

    def can_allocate(self, request: Request, num_new: int) -> bool:
        """Whether a running request can have the blocks that `num_new` more tokens need."""
        needed = self.blocks_for(request.num_computed_tokens + num_new) - len(request.block_table)
        return needed <= self.pool.num_free

    def missing_for(self, request: Request, matched: list[KVCacheBlock], num_new: int) -> int:
        """How many free blocks are missing to admit a request; 0 or less when it fits."""
        if self.config.allocator == "contiguous":
            needed = self.blocks_for(request.num_prompt_tokens + request.max_tokens)
            return 0 if self.pool.find_run(needed) is not None else needed
        needed = self.blocks_for(len(matched) * self._size + num_new) - len(matched)
        # The watermark is for others: with nobody running there is nobody to leave blocks for.
        spare = self.config.watermark_blocks if self._holders else 0
        free = self.pool.num_free - sum(block.ref_cnt == 0 for block in matched)
        return needed + spare - free

    # --- changes --------------------------------------------------------------------------------

    def take_operations(self) -> list[KVOperation]:
        """The sequence operations since the last call, in order."""
        operations = self._operations[:]
        self._operations.clear()
        return operations

    def begin(self, request: Request, matched: list[KVCacheBlock]) -> int:
        """Start a request in its slot on the matched blocks; returns the number of cached tokens."""
        assert request.slot is not None and not request.block_table
        self._holders[request.request_id] = request
        if matched:
            sources = self._copy_cells(matched, request.slot)
            self.pool.share(matched, request)
            self._parking.unpark(matched)
            request.block_table.extend(matched)
            self._tell.matched(request, matched, sources, self._size)
        request.num_stored_blocks = len(matched)
        if self.config.prefix_caching:
            self._announce(request)
        elif self.config.allocator == "contiguous":
            self._reserve_run(request)
        return len(matched) * self._size

    def allocate(self, request: Request, num_new: int) -> None:
        """Add the blocks that `num_new` more tokens need; ask first whether they are there."""
        table = request.block_table
        needed = self.blocks_for(request.num_computed_tokens + num_new) - len(table)
        if needed <= 0:
            return
        taken, had_content = self.pool.take(needed, request, len(table))
        if had_content:
            self._parking.evict(had_content, f"{request.name} needs a block")
        table += taken
        self._tell.allocated(request, taken, num_new)

    def copy_on_write(self, parent: Request | None, fork: Request) -> None:
        """A fork writes into the block that its parent has filled in part, so it has got one of its own.

        llama.cpp cannot copy cells inside a cache: the copy is made by computing those tokens again.
        """
        index, num_tokens = divmod(fork.num_prompt_tokens - 1, self._size)
        holds = parent is not None and index < len(parent.block_table) and index < len(fork.block_table)
        if (
            parent is not None
            and holds
            and num_tokens
            and parent.block_table[index] is not fork.block_table[index]
        ):
            self._tell.copied(fork, parent.block_table[index], num_tokens)

    def store_full_blocks(self, request: Request) -> None:
        """Offer blocks that became full to the prefix cache; call after `num_computed_tokens` moved."""
        full = request.num_computed_tokens // self._size
        first = request.num_stored_blocks
        if first >= full or not self.config.prefix_caching or request.lossy:
            return
        links = self._links(request)
        stored = self.pool.store(request.block_table[first:full], links[first:full])
        self._tell.stored(stored, links)
        request.num_stored_blocks = full
        self._announce(request)

    def shrink(self, request: Request) -> None:
        """Clear the lane's cells beyond `num_computed_tokens` (rejected drafts); their blocks stay."""
        assert request.slot is not None
        self._operations.append(SeqRemove(request.slot, request.num_computed_tokens))

    def free(self, request: Request, reason: str) -> None:
        """Give all blocks back, tails first, and clear the request's lane."""
        if self._holders.pop(request.request_id, None) is None:
            return
        assert request.slot is not None
        released, cached = self.pool.release(reversed(request.block_table), request)
        if cached:
            self._parking.park(cached, request.slot)
        self._operations.append(SeqRemove(request.slot))
        self._tell.freed(request, released, reason)
        self._computing.pop(request.computing, None)
        request.computing = 0
        request.block_table.clear()
        request.block_hashes.clear()  # a preempted request that returns makes them again
        request.num_stored_blocks = 0

    # --- swapping -------------------------------------------------------------------------------

    def swap_out(self, request: Request) -> None:
        """Save the lane's KV in host memory, then give its blocks back."""
        assert request.slot is not None
        request.num_swapped_tokens = request.num_computed_tokens
        self._operations.append(SeqSave(request.slot, request.request_id))
        self.free(request, "swapped out")

    def swap_in(self, request: Request) -> None:
        """Take blocks for the saved KV and put it back into the request's (new) lane."""
        assert request.slot is not None
        self._holders[request.request_id] = request
        self.allocate(request, request.num_swapped_tokens)
        self._operations.append(SeqRestore(request.request_id, request.slot))
        request.num_computed_tokens = request.num_swapped_tokens
        request.num_swapped_tokens = 0

    def load(self, request: Request, saved: Loadable) -> None:
        """Take blocks for a sequence from the tiers and put it into the request's lane."""
        assert request.slot is not None
        self._holders[request.request_id] = request
        self.allocate(request, saved.num_tokens)
        self._operations.append(SeqLoad(request.slot, saved.blob, saved.num_tokens))
        request.num_computed_tokens = request.num_cached_tokens = saved.num_tokens
        request.lossy = saved.lossy
        self._tell.loaded(request, saved)
        self.store_full_blocks(request)

    def archive(self, request: Request) -> None:
        """Hand a copy of the lane to the tiers, before it is freed."""
        assert request.slot is not None
        held = request.token_ids[: request.num_computed_tokens]
        self._operations.append(SeqArchive(request.slot, held, request.cache_salt, request.lossy))

    def drop_swapped(self, request: Request) -> None:
        """Forget a saved lane whose request ended while it waited."""
        if request.num_swapped_tokens:
            self._operations.append(SeqDrop(request.request_id))
            request.num_swapped_tokens = 0

    # --- inside ---------------------------------------------------------------------------------

    def _links(self, request: Request) -> list[Link]:
        """Hashes of the request's full blocks; each is computed once in its life."""
        extend_chain(request.block_hashes, request.token_ids, self._size, request.cache_salt)
        return request.block_hashes

    def _announce(self, request: Request) -> None:
        """Tell which block the request computes now: whoever needs the same one waits and shares it."""
        self._computing.pop(request.computing, None)
        request.computing = 0
        if request.num_stored_blocks < len(request.block_hashes):
            key = request.block_hashes[request.num_stored_blocks][0]
            if self._computing.setdefault(key, request.request_id) == request.request_id:
                request.computing = key

    def _reserve_run(self, request: Request) -> None:
        """One unbroken run of blocks for the longest answer, as systems before PagedAttention did."""
        count = self.blocks_for(request.num_prompt_tokens + request.max_tokens)
        start = self.pool.find_run(count)
        assert start is not None
        blocks = self.pool.take_run(start, count, request)
        for index, block in enumerate(blocks):
            block.index = index
        request.block_table.extend(blocks)
        self._tell.allocated(request, blocks, count * self._size)

    def _copy_cells(self, blocks: list[KVCacheBlock], slot: int) -> list[str]:
        """Operations that let `slot` own the cells of a prefix; returns from whom, for the trace."""
        size = self._size
        sources: list[str] = []
        source, first = -1, 0  # of the run so far
        for index, block in enumerate(blocks):
            if block.park is None:
                holder = block.owner or self._find_holder(block)
                assert holder.slot is not None
                from_, name = holder.slot, holder.name
            else:
                from_, name = block.park, "the cache"
            if from_ != source:
                if index:
                    self._operations.append(SeqCopy(source, slot, first * size, index * size))
                source, first = from_, index
                sources.append(name)
        self._operations.append(SeqCopy(source, slot, first * size, len(blocks) * size))
        return sources

    def _find_holder(self, block: KVCacheBlock) -> Request:
        """A request that holds the block, when the one that was known has given it up."""
        for holder in self._holders.values():
            table = holder.block_table
            if block.index < len(table) and table[block.index] is block:
                block.owner = holder
                return holder
        raise AssertionError(f"{block} is stored but nobody holds its cells")

    def ledger(self) -> dict[tuple[int, int], CellOwners]:
        """Every written cell with its owners, as the next step finds it."""
        return cell_owners(self._holders.values(), self.pool, self._size)

    def check_integrity(self) -> None:
        self.pool.check_integrity()
        self._parking.check_integrity()
        entries = sum(len(holder.block_table) for holder in self._holders.values())
        counts = sum(block.ref_cnt for block in self.pool.blocks)
        ensure(entries == counts, f"tables have {entries} entries, reference counts sum to {counts}")
        for name, holder in self._holders.items():
            ids = [block.block_id for block in holder.block_table]
            ensure(len(ids) == len(set(ids)), f"{name} holds a block twice: {ids}")
            ensure(holder.num_computed_tokens <= len(ids) * self._size, f"{name} has tokens without a block")
            for i, block in enumerate(holder.block_table):
                ensure(block.index == i, f"{block} stands at place {i} of {name}'s table")
        for key, name in self._computing.items():
            ensure(name in self._holders and self._holders[name].computing == key, f"{name} computes nothing")
