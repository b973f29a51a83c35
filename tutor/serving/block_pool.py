"""The pool of KV blocks: reference counts, the free queue, and which block holds which prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from tutor.serving.errors import ensure


class KVCacheBlock:
    """One block of `block_size` cells; its positions start at `index * block_size` of its prefix.

    `block_hash` is 0 until the block is full and stored. A block with ref_cnt 0 and a hash is *cached*: free
    to be taken, but its content can still be matched. `park` is the sequence id that keeps its cells then.
    """

    __slots__ = ("block_hash", "block_id", "index", "parent_hash", "park", "ref_cnt", "token_ids")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = 0
        self.parent_hash = 0
        self.token_ids: tuple[int, ...] = ()
        self.index = 0
        self.park: int | None = None

    def __repr__(self) -> str:
        return f"KVCacheBlock({self.block_id}, ref_cnt={self.ref_cnt}, index={self.index})"


class BlockPool:
    """Owns all blocks.

    Blocks without content come first when one is taken; then cached ones, least recently used first and
    tails before heads (a request frees its last block first).
    """

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self._empty: list[KVCacheBlock] = self.blocks[::-1]
        self._cached: OrderedDict[int, KVCacheBlock] = OrderedDict()
        self._by_hash: dict[int, KVCacheBlock] = {}

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._cached)

    @property
    def num_used(self) -> int:
        return len(self.blocks) - self.num_free

    def find(self, block_hash: int, token_ids: tuple[int, ...]) -> KVCacheBlock | None:
        """The block stored under a hash, in use or cached; None if its tokens differ (a collision)."""
        block = self._by_hash.get(block_hash)
        return block if block is not None and block.token_ids == token_ids else None

    def take(self) -> KVCacheBlock:
        """Take a free block (ref_cnt 1). A cached one still carries its hash: the caller evicts it."""
        block = self._empty.pop() if self._empty else self._cached.popitem(last=False)[1]
        block.ref_cnt = 1
        return block

    def find_run(self, count: int) -> int | None:
        """First block of the first unbroken run of `count` empty blocks; None when there is none."""
        length = 0
        for block in self.blocks:
            length = length + 1 if block.ref_cnt == 0 and not block.block_hash else 0
            if length == count:
                return block.block_id - count + 1
        return None

    def take_run(self, start: int, count: int) -> list[KVCacheBlock]:
        """Take the blocks start..start + count - 1, which `find_run` found (ref_cnt 1 each)."""
        run = self.blocks[start : start + count]
        taken = set(range(start, start + count))
        self._empty = [block for block in self._empty if block.block_id not in taken]
        for block in run:
            block.ref_cnt = 1
        return run

    def share(self, block: KVCacheBlock) -> None:
        """One more owner; a cached block leaves the free queue."""
        if block.ref_cnt == 0:
            del self._cached[block.block_id]
        block.ref_cnt += 1

    def release(self, block: KVCacheBlock) -> bool:
        """One owner less. True when nobody holds it any more; it is then free."""
        ensure(block.ref_cnt > 0, "a block was freed twice")
        block.ref_cnt -= 1
        if block.ref_cnt:
            return False
        if block.block_hash:
            self._cached[block.block_id] = block
        else:
            self._empty.append(block)
        return True

    def store(self, block: KVCacheBlock, block_hash: int, parent: int, tokens: tuple[int, ...]) -> bool:
        """Remember a full block under its hash. False if another block already holds this content."""
        if self._by_hash.setdefault(block_hash, block) is not block:
            return False
        block.block_hash, block.parent_hash, block.token_ids = block_hash, parent, tokens
        return True

    def forget(self, block: KVCacheBlock) -> None:
        """Drop a block's hash: its content can no longer be matched."""
        self._by_hash.pop(block.block_hash, None)
        block.block_hash, block.parent_hash, block.token_ids = 0, 0, ()
        if self._cached.pop(block.block_id, None) is not None:
            self._empty.append(block)

    def cached(self) -> Iterator[KVCacheBlock]:
        """Cached blocks in eviction order."""
        return iter(self._cached.values())

    def check_integrity(self) -> None:
        empty = {block.block_id for block in self._empty}
        ensure(len(empty) == len(self._empty), "a block is twice in the free list")
        ensure(not empty & self._cached.keys(), "a block is both empty and cached")
        ensure(self.num_free + self.num_used == len(self.blocks), "free + used blocks != all blocks")
        for block in self.blocks:
            name = f"block {block.block_id}"
            ensure(block.ref_cnt >= 0, f"{name} has ref_cnt {block.ref_cnt}")
            free = block.block_id in empty or block.block_id in self._cached
            ensure(free == (block.ref_cnt == 0), f"{name}: free is {free}, ref_cnt {block.ref_cnt}")
            ensure(
                (block.block_id in self._cached) <= bool(block.block_hash), f"{name} is cached without hash"
            )
            if block.block_hash:
                found = self._by_hash.get(block.block_hash)
                ensure(found is block, f"{name}: its hash leads to {found}")
        stored = sum(bool(block.block_hash) for block in self.blocks)
        ensure(stored == len(self._by_hash), f"{stored} blocks have a hash, {len(self._by_hash)} are indexed")
