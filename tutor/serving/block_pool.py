"""The pool of KV blocks: reference counts, the free queue, and which block holds which hash."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tutor.serving.errors import ensure


@dataclass
class KVCacheBlock:
    """One block of `block_size` cells; its positions start at `index * block_size` of its prefix.

    A block with ref_cnt 0 and a hash is *cached*: free to be taken, but its content can still be matched.
    """

    block_id: int
    ref_cnt: int = 0
    block_hash: str = ""
    parent_hash: str = ""
    token_ids: tuple[int, ...] = ()
    index: int = 0
    park: int | None = None


class BlockPool:
    """Owns all blocks. The free queue is in eviction order: least recently used first, tails before heads."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._by_hash: dict[str, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self.blocks) - len(self._free)

    def find(self, block_hash: str) -> KVCacheBlock | None:
        """The block stored under a hash, in use or cached."""
        block_id = self._by_hash.get(block_hash)
        return None if block_id is None else self.blocks[block_id]

    def take(self) -> KVCacheBlock:
        """Take the first free block (ref_cnt 1). The caller handles its old hash by `forget`."""
        block_id, _ = self._free.popitem(last=False)
        block = self.blocks[block_id]
        block.ref_cnt = 1
        return block

    def peek_free(self) -> KVCacheBlock:
        return self.blocks[next(iter(self._free))]

    def share(self, block: KVCacheBlock) -> None:
        """One more owner; a cached block leaves the free queue."""
        if block.ref_cnt == 0:
            del self._free[block.block_id]
        block.ref_cnt += 1

    def release(self, block: KVCacheBlock) -> bool:
        """One owner less. True when nobody holds it any more; it is then free."""
        ensure(block.ref_cnt > 0, f"block {block.block_id} was freed twice")
        block.ref_cnt -= 1
        if block.ref_cnt:
            return False
        self._free[block.block_id] = None
        if not block.block_hash:
            # Nothing is lost by reusing it, so it goes before every cached block.
            self._free.move_to_end(block.block_id, last=False)
        return True

    def store(self, block: KVCacheBlock, block_hash: str, parent: str, tokens: tuple[int, ...]) -> bool:
        """Remember a full block under its hash. False if another block already holds this content."""
        if block_hash in self._by_hash:
            return False
        block.block_hash, block.parent_hash, block.token_ids = block_hash, parent, tokens
        self._by_hash[block_hash] = block.block_id
        return True

    def forget(self, block: KVCacheBlock) -> None:
        """Drop a block's hash: its content can no longer be matched."""
        self._by_hash.pop(block.block_hash, None)
        block.block_hash, block.parent_hash, block.token_ids = "", "", ()
        if block.block_id in self._free:
            self._free.move_to_end(block.block_id, last=False)

    def cached_in_eviction_order(self) -> list[KVCacheBlock]:
        return [self.blocks[b] for b in self._free if self.blocks[b].block_hash]

    def check_integrity(self) -> None:
        ensure(self.num_free + self.num_used == len(self.blocks), "free + used blocks != all blocks")
        for block in self.blocks:
            ensure(block.ref_cnt >= 0, f"block {block.block_id} has ref_cnt {block.ref_cnt}")
            free = block.block_id in self._free
            ensure(
                free == (block.ref_cnt == 0), f"block {block.block_id}: free {free}, ref_cnt {block.ref_cnt}"
            )
            if block.block_hash:
                found = self._by_hash.get(block.block_hash)
                ensure(found == block.block_id, f"block {block.block_id}: its hash leads to block {found}")
        for block_hash, block_id in self._by_hash.items():
            ensure(self.blocks[block_id].block_hash == block_hash, f"hash {block_hash} is stale")
