"""Causal attention with grouped key and value heads."""

import numpy as np


def attention(Q, K, V):
    """Attention of the N newest tokens over all T tokens.

    Q: float32 [N, heads, dim], queries of the last N of the T tokens, already rotated (unit: none)
    K: float32 [T, kv_heads, dim], keys of all tokens, already rotated
    V: float32 [T, kv_heads, dim], values of all tokens

    heads is a multiple of kv_heads; N goes from 1 (a decode step) to T (a whole prompt). Row i of Q
    sits at position T - N + i and reads the keys of positions 0 to T - N + i.

    Returns [N, heads * dim], the heads side by side. Q, K and V stay as they are.
    """
    raise NotImplementedError("scores, scale, mask, softmax, mix the values")
