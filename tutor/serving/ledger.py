"""The ledger: which sequences own which written cell, according to the block tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tutor.serving.block_pool import BlockPool
from tutor.serving.request import Request


@dataclass(frozen=True, slots=True)
class CellOwners:
    """What the ledger says of one written cell: its position and the sequences that own it."""

    position: int
    sequences: tuple[int, ...]


def cell_owners(holders: Iterable[Request], pool: BlockPool, size: int) -> dict[tuple[int, int], CellOwners]:
    """Every written cell, by (block_id, offset in the block), as the next step finds it."""
    owners: dict[tuple[int, int], list[int]] = {}
    for holder in holders:
        assert holder.slot is not None
        for position in range(holder.num_computed_tokens):
            block = holder.block_table[position // size]
            owners.setdefault((block.block_id, position % size), []).append(holder.slot)
    for block in pool.cached():
        if block.park is not None:
            for offset in range(size):
                owners.setdefault((block.block_id, offset), []).append(block.park)
    return {
        (block_id, offset): CellOwners(pool.blocks[block_id].index * size + offset, tuple(sorted(sequences)))
        for (block_id, offset), sequences in owners.items()
    }
