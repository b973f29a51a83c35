# exercise: kv-cache
# unusual: online softmax, one stored token at a time as FlashAttention does; tuples; generate is a generator
import numpy as np


class KVCache:
    def __init__(self):
        self.tokens = ()

    def append(self, k, v):
        self.tokens += ((np.repeat(k, 3, axis=0), np.repeat(v, 3, axis=0)),)

    def attend(self, q):
        top, total, mixed = np.full((9, 1), -np.inf), np.zeros((9, 1)), np.zeros((9, 64))
        for k, v in self.tokens:
            score = (q * k).sum(axis=1, keepdims=True) / 8
            new = np.maximum(top, score)
            old, now = np.exp(top - new), np.exp(score - new)
            top, total, mixed = new, total * old + now, mixed * old + now * v
        return (mixed / total).reshape(576).astype(np.float32)

    def truncate(self, n):
        self.tokens = self.tokens[:n]


def generate(engine, prompt, n):
    token = int(engine.decode(prompt, [*range(len(prompt))]).argmax())
    yield token
    for position in range(len(prompt), len(prompt) + n - 1):
        token = int(engine.decode([token], [position]).argmax())
        yield token
