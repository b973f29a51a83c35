# fails: fork without overwriting
# says: overwrote parent's slot
"""Exercise: a block table, reading a cache through it, and forking without overwriting anybody."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class BlockTable:
    """Where a request's tokens are. `blocks` is a list: physical block ids, in the order of the tokens."""

    def __init__(self, block_size: int, take: Callable[[], int]) -> None:
        """block_size: tokens a block. take() hands out one free physical block and returns its id."""
        self.block_size = block_size
        self.take = take
        self.blocks: list[int] = []
        self.tokens = 0

    def append(self, n: int) -> list[int]:
        """Make room for n more tokens. Returns the ids of the blocks taken now, in order."""
        self.tokens += n
        needed = -(-self.tokens // self.block_size)  # rounded up
        new = [self.take() for _ in range(needed - len(self.blocks))]
        self.blocks += new
        return new

    def slot(self, pos: int) -> tuple[int, int]:
        """The physical place of the token at position pos: (block id, offset in the block)."""
        return self.blocks[pos // self.block_size], pos % self.block_size

    def waste(self) -> int:
        """Empty token slots in the blocks that this table holds."""
        return len(self.blocks) * self.block_size - self.tokens


def gather(pool: np.ndarray, blocks: list[int], n: int) -> np.ndarray:
    """The first n rows of a request, in the order of its tokens."""
    rows = pool[np.array(blocks, dtype=int)]  # [blocks, block_size, 3, 64]
    return rows.reshape(len(blocks) * pool.shape[1], *pool.shape[2:])[:n]


def fork(
    blocks: list[int], n: int, block_size: int, take: Callable[[], int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """A second request that starts with the same n tokens: (the child's block table, copies)."""
    return list(blocks), []
