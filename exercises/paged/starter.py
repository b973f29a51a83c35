"""Exercise: a block table, reading a cache through it, and forking without overwriting anybody."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class BlockTable:
    """Where a request's tokens are. `blocks` is a list: physical block ids, in the order of the tokens."""

    def __init__(self, block_size: int, take: Callable[[], int]) -> None:
        """block_size: tokens a block. take() hands out one free physical block and returns its id."""
        raise NotImplementedError("BlockTable.__init__: no tokens and no blocks yet; keep an attribute `blocks`")

    def append(self, n: int) -> list[int]:
        """Make room for n more tokens (n >= 0). Returns the ids of the blocks taken now, in order.

        Call take() only for a block that is needed; fill the last block first.
        """
        raise NotImplementedError("BlockTable.append: take a block only when the last one is full")

    def slot(self, pos: int) -> tuple[int, int]:
        """The physical place of the token at position pos: (block id, offset in the block)."""
        raise NotImplementedError("BlockTable.slot: look the block up, then the offset")

    def waste(self) -> int:
        """Empty token slots in the blocks that this table holds."""
        raise NotImplementedError("BlockTable.waste: room in the blocks minus tokens")


def gather(pool: np.ndarray, blocks: list[int], n: int) -> np.ndarray:
    """The first n rows of a request, in the order of its tokens.

    pool: float32[num_blocks, block_size, 3, 64], the keys (or values) of all requests.
    blocks: the request's block table. Returns float32[n, 3, 64]; n may be 0.
    """
    raise NotImplementedError("gather: read the blocks in the order of the table")


def fork(
    blocks: list[int], n: int, block_size: int, take: Callable[[], int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """A second request that starts with the same n tokens (blocks: the parent's table, for exactly n tokens).

    Full blocks are shared. A partly filled last block is not: the child gets a new one from take().
    Returns (the child's block table, copies). copies lists the blocks whose content has to be copied
    now, as (from block, to block). The parent's table stays as it is.
    """
    raise NotImplementedError("fork: share full blocks, copy a partly filled one")
