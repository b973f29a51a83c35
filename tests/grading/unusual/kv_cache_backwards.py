# exercise: kv-cache
# unusual: newest token first, since softmax does not mind the order; all heads in one batched product
from collections import deque

import numpy as np


class KVCache:
    def __init__(self):
        self.newest_first = deque()

    def append(self, k, v):
        self.newest_first.appendleft(np.stack([k, v]))

    def attend(self, q):
        k, v = np.stack(self.newest_first, axis=2)  # [3, tokens, 64] each
        scores = q.reshape(3, 3, 64) @ k.transpose(0, 2, 1) * 0.125
        scores -= np.logaddexp.reduce(scores.astype(np.float64), axis=2, keepdims=True)
        return (np.exp(scores) @ v).reshape(-1)

    def truncate(self, n):
        while len(self.newest_first) > n:
            self.newest_first.popleft()


def generate(engine, prompt, n):
    out = []
    feed, place = list(prompt), 0
    while True:
        row = engine.decode(feed, list(range(place, place + len(feed))))
        out.append(np.flatnonzero(row == row.max())[0])
        if len(out) == n:
            return tuple(out)
        place += len(feed)
        feed = [int(out[-1])]
