# exercise: paged
# unusual: iterators where lists are expected, blocks in a deque, rows streamed out of the pool
from collections import deque
from itertools import chain, islice

import numpy as np


class BlockTable:
    def __init__(self, block_size, take):
        self.supply = iter(take, None)
        self.size, self.blocks, self.tokens = block_size, deque(), 0

    def append(self, n):
        self.tokens += n
        more = (self.tokens + self.size - 1) // self.size - len(self.blocks)
        new = list(islice(self.supply, more))
        self.blocks.extend(new)
        return iter(new)

    def slot(self, pos):
        entry, offset = divmod(pos, self.size)
        return map(int, (self.blocks[entry], offset))

    def waste(self):
        return -self.tokens % self.size


def gather(pool, blocks, n):
    rows = islice(chain.from_iterable(pool[block] for block in blocks), n)
    return np.array([*rows], dtype=np.float32).reshape(n, *pool.shape[2:])


def fork(blocks, n, block_size, take):
    full, tail = divmod(n, block_size)
    new = [take()] if tail else []
    return chain(blocks[:full], new), zip(blocks[full:], new, strict=False)
