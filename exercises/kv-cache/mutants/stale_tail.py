# fails: truncate, then another text
# says: Stale keys of the abandoned suffix are still attended
"""Exercise: a KV cache for one layer, and a decode loop that never computes a token twice."""

from __future__ import annotations

import numpy as np

Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64


class KVCache:
    """Keys and values of one layer, one row a token, in the order of their positions."""

    def __init__(self) -> None:
        self.keys = np.zeros((0, KV_HEADS, HEAD_DIM), np.float32)
        self.values = np.zeros((0, KV_HEADS, HEAD_DIM), np.float32)
        self.length = 0

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        """Store the key and the value of the next token: k and v are float32[3, 64], already rotated."""
        if self.length == len(self.keys):
            self.keys = np.concatenate([self.keys, k[None]])
            self.values = np.concatenate([self.values, v[None]])
        self.keys[self.length], self.values[self.length] = k, v
        self.length += 1

    def attend(self, q: np.ndarray) -> np.ndarray:
        """Attention of the newest token (q: float32[9, 64]) over all stored tokens; float32[576]."""
        group = Q_HEADS // KV_HEADS
        keys = self.keys.repeat(group, axis=1)  # [tokens, 9, 64], rows beyond `length` included
        values = self.values.repeat(group, axis=1)
        scores = np.einsum("hd,thd->ht", q, keys) / np.sqrt(HEAD_DIM)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.einsum("ht,thd->hd", weights, values).reshape(Q_HEADS * HEAD_DIM)

    def truncate(self, n: int) -> None:
        """Keep the first n tokens and forget all later ones."""
        self.length = n


def generate(engine, prompt: list[int], n: int) -> list[int]:
    """Write n tokens after the prompt, always taking the most probable one."""
    logits = engine.decode(prompt, list(range(len(prompt))))
    output = [int(np.argmax(logits))]
    while len(output) < n:
        position = len(prompt) + len(output) - 1
        logits = engine.decode([output[-1]], [position])
        output.append(int(np.argmax(logits)))
    return output
