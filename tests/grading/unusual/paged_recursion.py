# exercise: paged
# unusual: recursion instead of loops; gather joins a block and the rest; a namedtuple from fork
from collections import namedtuple

import numpy as np

Forked = namedtuple("Forked", "table copies")


class BlockTable:
    def __init__(self, block_size, take):
        self.block_size, self.take = block_size, take
        self.blocks, self.room = [], 0

    def append(self, n):
        if n <= self.room:
            self.room -= n
            return []
        rest, self.room = n - self.room, self.block_size
        block = self.take()
        self.blocks = [*self.blocks, block]
        return [block, *self.append(rest)]

    def slot(self, pos, first=0):
        if pos < self.block_size:
            return [self.blocks[first], pos]
        return self.slot(pos - self.block_size, first + 1)

    def waste(self):
        return self.room


def gather(pool, blocks, n):
    if n == 0:
        return pool[0, :0]
    here = pool[blocks[0]][:n]
    return np.vstack([here, gather(pool, blocks[1:], n - len(here))])


def fork(blocks, n, block_size, take):
    if n == 0:
        return Forked([], [])
    if n < block_size:
        block = take()
        return Forked([block], [(blocks[0], block)])
    rest = fork(blocks[1:], n - block_size, block_size, take)
    return Forked([blocks[0], *rest.table], rest.copies)
