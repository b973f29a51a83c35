# fails: arrays
# says: You return x itself.
"""Call back and forth."""

from typing import NamedTuple

import numpy as np


class Summary(NamedTuple):
    mean: float
    shape: tuple


def repeat(step, n):
    """Call `step` n times, starting with 1, each time with the last result."""
    results, value = [], 1
    for _ in range(n):
        value = step(value)
        results.append(value)
    return results


def drive(engine, n):
    """Add the numbers 1..n on the engine and return its total."""
    for number in range(1, n + 1):
        engine.add(number)
    return engine.total()


class Stack:
    """A stack with push, pop, copy and an attribute `size`."""

    def __init__(self):
        self.items = []

    @property
    def size(self):
        return len(self.items)

    def push(self, value):
        self.items.append(value)

    def pop(self):
        return self.items.pop()

    def copy(self):
        fresh = Stack()
        fresh.items = list(self.items)
        return fresh


def summary(x: np.ndarray):
    """An object with the fields `mean` (float) and `shape` (tuple)."""
    return Summary(x.mean(), x.shape)


def scale(x: np.ndarray, factor: float) -> np.ndarray:
    """x times factor, float32; x stays as it is."""
    return x.astype(np.float32)
