# exercise: paged
# unusual: NumPy arrays for tables and answers, rows placed through a mask, copies as an array of pairs
import numpy as np


class BlockTable:
    def __init__(self, block_size, take):
        self.block_size, self.take, self.fill = block_size, take, np.zeros(0, dtype=int)
        self.blocks = np.zeros(0, dtype=int)

    def append(self, n):
        total = int(self.fill.sum()) + n
        count = int(np.ceil(total / self.block_size))
        new = np.array([self.take() for _ in range(len(self.blocks), count)], dtype=int)
        self.blocks = np.concatenate([self.blocks, new])
        self.fill = np.clip(total - self.block_size * np.arange(count), 0, self.block_size)
        return new

    def slot(self, pos):
        return np.array([self.blocks[pos // self.block_size], pos % self.block_size])

    def waste(self):
        return np.int64(self.block_size * len(self.fill) - self.fill.sum())


def gather(pool, blocks, n):
    out = np.empty((n, *pool.shape[2:]), dtype=pool.dtype)
    for t in range(0, n, pool.shape[1]):
        part = out[t : t + pool.shape[1]]
        part[...] = pool[blocks[t // pool.shape[1]], : len(part)]
    return out


def fork(blocks, n, block_size, take):
    table = np.array(blocks, dtype=int)
    if n % block_size == 0:
        return table, np.zeros((0, 2), dtype=int)
    old, table[-1] = int(table[-1]), take()
    return table, np.array([[old, table[-1]]])
