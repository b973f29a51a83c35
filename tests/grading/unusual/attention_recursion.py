# exercise: attention
# unusual: the newest row is computed, the others are the same task with one token less; powers of 2, not of e
import numpy as np


def attention(Q, K, V):
    heads, dim = Q.shape[1:]
    kv_heads = K.shape[1]
    grouped = Q[-1].reshape(kv_heads, heads // kv_heads, dim).astype(np.float64)
    scores = grouped @ K.transpose(1, 2, 0) * np.log2(np.e) / np.sqrt(dim)
    weights = np.exp2(scores - scores.max(axis=2, keepdims=True))
    mixed = weights / weights.sum(axis=2, keepdims=True) @ V.transpose(1, 0, 2)
    newest = mixed.reshape(1, heads * dim)
    if len(Q) == 1:
        return newest
    return np.vstack([attention(Q[:-1], K[:-1], V[:-1]), newest])
