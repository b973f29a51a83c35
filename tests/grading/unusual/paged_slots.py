# exercise: paged
# unusual: a list with one (block, offset) a token; gather through flat row numbers, as float64
import numpy as np


class BlockTable:
    def __init__(self, block_size, take):
        self._size, self._take, self._free, self._slots = block_size, take, [], []

    @property
    def blocks(self):
        return list(dict.fromkeys(block for block, _ in self._slots))

    def append(self, n):
        taken = []
        for _ in range(n):
            if not self._free:
                taken.append(self._take())
                self._free = [(taken[-1], offset) for offset in range(self._size)]
            self._slots.append(self._free.pop(0))
        return taken

    def slot(self, pos):
        return self._slots[pos]

    def waste(self):
        return len(self._free)


def gather(pool, blocks, n):
    size = pool.shape[1]
    rows = [blocks[t // size] * size + t % size for t in range(n)]
    return np.take(pool.reshape(-1, *pool.shape[2:]), np.array(rows, dtype=int), axis=0).astype(np.float64)


def fork(blocks, n, block_size, take):
    child, copies = [], []
    for number, block in enumerate(blocks):
        if (number + 1) * block_size <= n:
            child.append(block)
        else:
            child.append(take())
            copies.append((block, child[-1]))
    return child, copies
