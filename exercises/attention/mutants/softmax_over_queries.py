# fails: attention
# says: Each *row* must sum to 1
"""Causal attention with grouped key and value heads."""

import numpy as np


def attention(Q, K, V):
    """Attention of the N newest tokens over all T tokens."""
    n, heads, dim = Q.shape
    t, kv_heads, _ = K.shape
    group = heads // kv_heads
    keys = K.repeat(group, axis=1)  # KV head g serves query heads g * group and those after it
    values = V.repeat(group, axis=1)
    scores = np.einsum("nhd,thd->hnt", Q, keys) / np.sqrt(dim)
    positions = np.arange(t - n, t)
    scores = np.where(np.arange(t) <= positions[:, None], scores, -1e30)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("hnt,thd->nhd", weights, values).reshape(n, heads * dim)
