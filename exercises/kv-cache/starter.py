"""Exercise: a KV cache for one layer, and a decode loop that never computes a token twice."""

from __future__ import annotations

import numpy as np

Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64


class KVCache:
    """Keys and values of one layer, one row a token, in the order of their positions."""

    def __init__(self) -> None:
        raise NotImplementedError("KVCache.__init__: start with no tokens")

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        """Store the key and the value of the next token: k and v are float32[3, 64], already rotated."""
        raise NotImplementedError("KVCache.append: keep k and v")

    def attend(self, q: np.ndarray) -> np.ndarray:
        """Attention of the newest token over all stored tokens, itself included.

        q is float32[9, 64], one query a head; query head h reads KV head h // 3.
        The weights of a head are softmax(q · k / sqrt(64)) over the stored tokens.
        Returns float32[576]: the 9 mixed values of 64 numbers, head after head.
        """
        raise NotImplementedError("KVCache.attend: compare q with every stored key, mix the values")

    def truncate(self, n: int) -> None:
        """Keep the first n tokens (0 <= n <= stored tokens) and forget all later ones."""
        raise NotImplementedError("KVCache.truncate: forget the tokens from position n on")


def generate(engine, prompt: list[int], n: int) -> list[int]:
    """Write n tokens after the prompt, always taking the most probable one.

    engine.decode(tokens, positions) runs the tokens through the model and keeps their keys and values.
    tokens and positions are lists of int of the same length; positions start at 0 and must go on exactly
    where the engine's cache ends. It returns the logits of the last token given: float32[49152].

    prompt has at least 1 token, n is at least 1. Returns exactly n token ids (do not stop at an
    end-of-text token). Submit every token once: P + n - 1 in all.
    """
    raise NotImplementedError("generate: submit the prompt once, then one token a step")
