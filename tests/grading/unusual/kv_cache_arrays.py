# exercise: kv-cache
# unusual: arrays that double when they are full, a counter for truncate, float64, one head at a time
import numpy as np


class KVCache:
    def __init__(self):
        self._kv = np.empty((2, 1, 3, 64))
        self._used = 0

    def append(self, k, v):
        if self._used == self._kv.shape[1]:
            self._kv = np.concatenate([self._kv, np.empty_like(self._kv)], axis=1)
        self._kv[:, self._used] = k, v
        self._used += 1

    def attend(self, q):
        out = np.zeros((9, 64))
        for h in range(9):
            k, v = self._kv[:, : self._used, h // 3]
            scores = k @ q[h] / 8.0
            weights = np.exp(scores - np.max(scores))
            out[h] = weights @ v / weights.sum()
        return out.ravel()

    def truncate(self, n):
        self._used = n


def generate(engine, prompt, n):
    todo, position, out = np.array(prompt), 0, []
    for _ in range(n):
        logits = engine.decode(todo, np.arange(position, position + len(todo)))
        position += len(todo)
        todo = np.array([logits.argmax()])
        out.extend(todo)
    return np.array(out)
