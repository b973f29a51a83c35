"""Who holds which KV blocks: block tables, sharing of prefixes, and the sequence operations that follow.

The tables are a ledger over llama.cpp's sequence operations: sharing a block is `SeqCopy`, giving one up
is `SeqRemove`.
"""

from __future__ import annotations

from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ensure
from tutor.serving.ledger import CellOwners, cell_owners
from tutor.serving.outputs import KVOperation, SeqCopy, SeqDrop, SeqRemove, SeqRestore, SeqSave
from tutor.serving.parking import Parking
from tutor.serving.prefix_cache import Link, extend_chain
from tutor.serving.request import Request
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
        found: list[KVCacheBlock] = []
        if self.config.prefix_caching:
            for key, tokens in self._links(request)[: (request.num_tokens - 1) // self._size]:
                block = self.pool.find(key, tokens)
                if block is None:
                    break
                found.append(block)
        return found

    def computed_by(self, request: Request, num_matched: int) -> str | None:
        """Who is computing the block that follows the matched prefix right now, if anybody."""
        if not self.config.prefix_caching or num_matched >= (request.num_tokens - 1) // self._size:
            return None
        return self._computing.get(self._links(request)[num_matched][0])

    def full_blocks(self, parent: Request, num_tokens: int) -> list[KVCacheBlock]:
        """The blocks of `parent` that its first `num_tokens` tokens fill."""
        return parent.block_table[: num_tokens // self._size]

    def has_room(self, request: Request, num_new: int) -> bool:
        """Whether the blocks that a running request holds suffice for `num_new` more tokens."""
        return request.num_computed_tokens + num_new <= len(request.block_table) * self._size

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
        sources: list[str] = []
        for block in matched:
            start = block.index * self._size
            source = self._sequence_holding(block, sources)
            self._operations.append(SeqCopy(source, request.slot, start, start + self._size))
            self.pool.share(block)
            self._parking.unpark(block)
            request.block_table.append(block)
        request.num_stored_blocks = len(matched)
        self._tell.matched(request, matched, sources, self._size)
        if self.config.prefix_caching:
            for key, _ in self._links(request)[len(matched) :]:
                self._computing.setdefault(key, request.request_id)
        if self.config.allocator == "contiguous":
            self._reserve_run(request)
        return len(matched) * self._size

    def allocate(self, request: Request, num_new: int) -> None:
        """Add the blocks that `num_new` more tokens need; ask first whether they are there."""
        table = request.block_table
        taken: list[KVCacheBlock] = []
        for _ in range(self.blocks_for(request.num_computed_tokens + num_new) - len(table)):
            block = self.pool.take()
            if block.block_hash:
                self._parking.evict(block, f"{request.name} needs a block")
            block.index = len(table)
            table.append(block)
            taken.append(block)
        if taken:
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
        if request.num_stored_blocks >= full or not self.config.prefix_caching:
            return
        links = self._links(request)
        for i in range(request.num_stored_blocks, full):
            key, tokens = links[i]
            block = request.block_table[i]
            parent = links[i - 1][0] if i else 0
            if self.pool.store(block, key, parent, tokens):
                self._tell.stored(block)
            if self._computing.get(key) == request.request_id:
                del self._computing[key]
        request.num_stored_blocks = full

    def shrink(self, request: Request) -> None:
        """Clear the lane's cells beyond `num_computed_tokens` (rejected drafts); their blocks stay."""
        assert request.slot is not None
        self._operations.append(SeqRemove(request.slot, request.num_computed_tokens))

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
                    self._parking.park(block, request.slot)
        self._operations.append(SeqRemove(request.slot))
        self._tell.freed(request, released, reason)
        for key, _ in request.block_hashes[request.num_stored_blocks :]:
            if self._computing.get(key) == request.request_id:
                del self._computing[key]
        request.block_table.clear()
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

    def _reserve_run(self, request: Request) -> None:
        """One unbroken run of blocks for the longest answer, as systems before PagedAttention did."""
        count = self.blocks_for(request.num_prompt_tokens + request.max_tokens)
        start = self.pool.find_run(count)
        assert start is not None
        blocks = self.pool.take_run(start, count)
        for index, block in enumerate(blocks):
            block.index = index
        request.block_table.extend(blocks)
        self._tell.allocated(request, blocks, count * self._size)

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
            ensure(name in self._holders, f"{name} computes {key:x} but holds no blocks")
