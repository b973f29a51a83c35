"""The pool of KV blocks: reference counts, the free queue, and which block holds which prefix.

Blocks are taken, shared, stored and released in runs, since a request handles many of them at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tutor.serving.errors import IntegrityError, ensure
from tutor.serving.prefix_cache import Link

if TYPE_CHECKING:
    from tutor.serving.request import Request


class KVCacheBlock:
    """One block of `block_size` cells; its positions start at `index * block_size` of its prefix.

    `block_hash` is 0 until the block is full and stored; `token_ids` are its tokens from then on. A block
    with ref_cnt 0 and a hash is *cached*: free to be taken, but its content can still be matched. `park` is
    the sequence id that keeps its cells then. `owner` is one of its holders, if it is known.
    """

    __slots__ = ("block_hash", "block_id", "index", "owner", "park", "ref_cnt", "token_ids")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = 0
        self.token_ids: tuple[int, ...] = ()
        self.index = 0
        self.owner: Request | None = None
        self.park: int | None = None

    def __repr__(self) -> str:
        return f"KVCacheBlock({self.block_id}, ref_cnt={self.ref_cnt}, index={self.index})"


class BlockPool:
    """Owns all blocks.

    Blocks without content come first when some are taken; then cached ones, least recently used first and
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

    def find(self, links: Sequence[Link]) -> list[KVCacheBlock]:
        """The blocks that hold the longest prefix of a hash chain, in use or cached.

        Tokens are compared as well, so a collision of hashes is no match.
        """
        found: list[KVCacheBlock] = []
        by_hash = self._by_hash
        for key, tokens in links:
            block = by_hash.get(key)
            if block is None or block.token_ids != tokens:
                break
            found.append(block)
        return found

    def take(
        self, count: int, owner: Request | None = None, first_index: int = 0
    ) -> tuple[list[KVCacheBlock], list[KVCacheBlock]]:
        """Take free blocks (ref_cnt 1) for the places `first_index` and on of a table; ask `num_free` first.

        Returns all of them, and those that were cached: they still carry their hash.
        """
        empty, cached = self._empty, self._cached
        plain = min(count, len(empty))
        taken = empty[: -plain - 1 : -1]
        del empty[len(empty) - plain :]
        had_content = [cached.popitem(last=False)[1] for _ in range(count - plain)]
        taken += had_content
        for index, block in enumerate(taken, start=first_index):
            block.ref_cnt = 1
            block.owner = owner
            block.index = index
        return taken, had_content

    def find_run(self, count: int) -> int | None:
        """First block of the first unbroken run of `count` empty blocks; None when there is none."""
        length = 0
        for block in self.blocks:
            length = length + 1 if block.ref_cnt == 0 and not block.block_hash else 0
            if length == count:
                return block.block_id - count + 1
        return None

    def take_run(self, start: int, count: int, owner: Request | None = None) -> list[KVCacheBlock]:
        """Take the blocks start..start + count - 1, which `find_run` found (ref_cnt 1 each)."""
        run = self.blocks[start : start + count]
        taken = set(range(start, start + count))
        self._empty = [block for block in self._empty if block.block_id not in taken]
        for block in run:
            block.ref_cnt = 1
            block.owner = owner
        return run

    def share(self, blocks: Iterable[KVCacheBlock], owner: Request | None = None) -> None:
        """One more owner each; cached blocks leave the free queue."""
        for block in blocks:
            if block.ref_cnt == 0:
                del self._cached[block.block_id]
                block.owner = owner
            block.ref_cnt += 1

    def release(
        self, blocks: Iterable[KVCacheBlock], owner: Request | None = None
    ) -> tuple[list[KVCacheBlock], list[KVCacheBlock]]:
        """One owner less each. Returns those that nobody holds any more (they are free now), and of them the
        cached ones.
        """
        empty, cached = self._empty, self._cached
        released, with_content = [], []
        for block in blocks:
            count = block.ref_cnt
            if count == 1:
                block.ref_cnt = 0
                released.append(block)
                if block.block_hash:
                    cached[block.block_id] = block
                    with_content.append(block)
                else:
                    empty.append(block)
            elif count > 1:
                block.ref_cnt = count - 1
                if block.owner is owner:
                    block.owner = None
            else:
                raise IntegrityError(f"{block} was freed twice")
        return released, with_content

    def store(self, blocks: Sequence[KVCacheBlock], links: Sequence[Link]) -> list[KVCacheBlock]:
        """Remember full blocks under their hashes; returns those whose content nobody had stored yet."""
        by_hash = self._by_hash
        stored = []
        for block, (key, tokens) in zip(blocks, links, strict=True):
            if by_hash.setdefault(key, block) is block:
                block.block_hash, block.token_ids = key, tokens
                stored.append(block)
        return stored

    def forget(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Drop hashes: the content can no longer be matched. Cached blocks become empty ones."""
        by_hash = self._by_hash
        for block in blocks:
            del by_hash[block.block_hash]
            block.block_hash = 0
            if not block.ref_cnt:
                del self._cached[block.block_id]
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
            ensure(block.ref_cnt >= 0, f"{block} has a negative count")
            free = block.block_id in empty or block.block_id in self._cached
            ensure(free == (block.ref_cnt == 0), f"{block}: free is {free}")
            ensure((block.block_id in self._cached) <= bool(block.block_hash), f"{block} is cached unhashed")
            if block.block_hash:
                found = self._by_hash.get(block.block_hash)
                ensure(found is block, f"{block}: its hash leads to {found}")
        stored = sum(bool(block.block_hash) for block in self.blocks)
        ensure(stored == len(self._by_hash), f"{stored} blocks have a hash, {len(self._by_hash)} are indexed")
