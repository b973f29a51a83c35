# exercise: kv-cache
# unusual: pure Python lists and zip, no NumPy at all; tokens in a dict by position; recursion in generate
from math import exp, fsum, sqrt


class KVCache:
    def __init__(self):
        self.rows = {}

    def append(self, k, v):
        self.rows[len(self.rows)] = (k.tolist(), v.tolist())

    def attend(self, q):
        return [number for h, query in enumerate(q.tolist()) for number in self.head(query, h // 3)]

    def head(self, query, kv):
        keys = [self.rows[t][0][kv] for t in range(len(self.rows))]
        values = [self.rows[t][1][kv] for t in range(len(self.rows))]
        scores = [fsum(a * b for a, b in zip(query, key, strict=False)) / sqrt(len(query)) for key in keys]
        top = max(scores)
        weights = [exp(score - top) for score in scores]
        total = fsum(weights)
        return [
            fsum(w * x for w, x in zip(weights, column, strict=False)) / total
            for column in zip(*values, strict=False)
        ]

    def truncate(self, n):
        self.rows = {t: row for t, row in self.rows.items() if t < n}


def generate(engine, prompt, n, start=0):
    logits = engine.decode(list(prompt), [start + i for i in range(len(prompt))]).tolist()
    token = logits.index(max(logits))
    if n == 1:
        return [token]
    return [token, *generate(engine, [token], n - 1, start + len(prompt))]
