# exercise: attention
# unusual: one pass over the keys with a running maximum and a running sum, row by row and head by head
import numpy as np


def read(query, keys, values):
    highest, total = -np.inf, 0.0
    mixed = np.zeros(values.shape[-1])
    for key, value in zip(keys, values, strict=True):
        score = float(query @ key) / len(query) ** 0.5
        above = max(highest, score)
        shrink, weight = np.exp(highest - above), np.exp(score - above)
        total = total * shrink + weight
        mixed = mixed * shrink + weight * value
        highest = above
    return mixed / total


def attention(Q, K, V):
    q, k, v = (x.astype(float) for x in (Q, K, V))
    n, heads, _ = q.shape
    t, kv_heads, _ = k.shape
    rows = []
    for i in range(n):
        end = t - n + i + 1
        shares = [(h, h * kv_heads // heads) for h in range(heads)]
        rows.append(np.concatenate([read(q[i, h], k[:end, g], v[:end, g]) for h, g in shares]))
    return np.stack(rows)
