# exercise: attention
# unusual: one matrix product for each KV head, its query heads stacked as rows; the mask is a bias
import numpy as np


def attention(Q, K, V):
    n, heads, dim = np.shape(Q)
    t, kv_heads, width = np.shape(V)
    group = heads // kv_heads
    bias = np.triu(np.full((n, t), -np.inf), k=t - n + 1)
    out = np.empty((n, heads, width), np.float32)
    for g in range(kv_heads):
        mine = slice(g * group, (g + 1) * group)
        stacked = Q[:, mine].transpose(1, 0, 2).reshape(group * n, dim) / np.float32(np.sqrt(dim))
        logits = (stacked @ K[:, g].T).reshape(group, n, t) + bias
        top = np.max(logits, axis=2, keepdims=True)
        log_total = top + np.log(np.sum(np.exp(logits - top), axis=2, keepdims=True))
        out[:, mine] = np.swapaxes(np.exp(logits - log_total) @ V[:, g], 0, 1)
    return np.reshape(out, (n, -1))
