"""How much of the KV memory holds no token: the three kinds of waste [PagedAttention, arXiv 2309.06180]."""

from __future__ import annotations

import msgspec

from tutor.trace.views import ServingView


class Waste(msgspec.Struct, frozen=True):
    """Tokens and blocks of a pool at one step.

    used: positions that hold a token. internal: positions in blocks that are filled in part. reserved:
    positions in blocks that a request holds and has not begun to fill. external_blocks: free blocks outside
    the longest unbroken run of free ones, useless to whoever needs one run.
    """

    used: int
    internal: int
    reserved: int
    free_blocks: int
    longest_free_run: int

    @property
    def held(self) -> int:
        """Positions that requests keep from others."""
        return self.used + self.internal + self.reserved

    @property
    def external_blocks(self) -> int:
        return self.free_blocks - self.longest_free_run

    @property
    def use(self) -> float:
        """Share of the held positions that hold a token; 1 when nothing is held."""
        return self.used / self.held if self.held else 1.0


def kv_waste(view: ServingView) -> Waste:
    """Waste at one step. A shared block counts once."""
    used = internal = reserved = free = run = longest = 0
    for block in view.blocks:
        if block.ref_cnt:
            run = 0
            used += block.num_tokens
            if block.num_tokens:
                internal += view.block_size - block.num_tokens
            else:
                reserved += view.block_size
        else:
            free += 1
            run += 1
            longest = max(longest, run)
    return Waste(used, internal, reserved, free, longest)
