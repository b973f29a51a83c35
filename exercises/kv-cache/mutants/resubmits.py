# fails: generate
# says: tokens submitted
"""Exercise: a KV cache for one layer, and a decode loop that never computes a token twice."""

from __future__ import annotations

import numpy as np

Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64


class KVCache:
    """Keys and values of one layer, one row a token, in the order of their positions."""

    def __init__(self) -> None:
        self.keys: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        """Store the key and the value of the next token: k and v are float32[3, 64], already rotated."""
        self.keys.append(k)
        self.values.append(v)

    def attend(self, q: np.ndarray) -> np.ndarray:
        """Attention of the newest token (q: float32[9, 64]) over all stored tokens; float32[576]."""
        group = Q_HEADS // KV_HEADS
        keys = np.stack(self.keys).repeat(group, axis=1)  # [tokens, 9, 64]
        values = np.stack(self.values).repeat(group, axis=1)
        scores = np.einsum("hd,thd->ht", q, keys) / np.sqrt(HEAD_DIM)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.einsum("ht,thd->hd", weights, values).reshape(Q_HEADS * HEAD_DIM)

    def truncate(self, n: int) -> None:
        """Keep the first n tokens and forget all later ones."""
        del self.keys[n:]
        del self.values[n:]


def generate(engine, prompt: list[int], n: int) -> list[int]:
    """Write n tokens after the prompt, always taking the most probable one."""
    logits = engine.decode(prompt, list(range(len(prompt))))
    output = [int(np.argmax(logits))]
    while len(output) < n:
        text = prompt + output
        logits = engine.decode(text, list(range(len(text))))
        output.append(int(np.argmax(logits)))
    return output
