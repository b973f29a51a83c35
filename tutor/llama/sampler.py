"""From logits to a token: greedy, or drawn after the filters of llama.cpp, in llama.cpp's order.

Order (llama.cpp's default chain, https://github.com/ggml-org/llama.cpp/tree/master/tools/server): top-k,
top-p, min-p, temperature last. All arithmetic is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tutor.llama.errors import EngineMisuse

Logits = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 switch a filter off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def check(self) -> None:
        """Raises EngineMisuse for a value outside its range."""
        if not 0.0 <= self.temperature < float("inf"):
            raise EngineMisuse(f"temperature is {self.temperature}.", "It has to be 0 or more.")
        if self.top_k < 0:
            raise EngineMisuse(f"top_k is {self.top_k}.", "It has to be 0 (off) or more.")
        if not 0.0 < self.top_p <= 1.0:
            raise EngineMisuse(f"top_p is {self.top_p}.", "It has to be above 0 and at most 1 (off).")
        if not 0.0 <= self.min_p <= 1.0:
            raise EngineMisuse(f"min_p is {self.min_p}.", "It has to be between 0 (off) and 1.")


def greedy(logits: Logits) -> int:
    """The most likely token; the lowest id among ties."""
    return int(np.argmax(logits))


def softmax(logits: Logits) -> NDArray[np.float64]:
    """exp(z) / sum exp(z) along the last axis, shifted by the maximum so that nothing overflows."""
    z = np.asarray(logits, np.float64)
    weights = np.exp(z - z.max(axis=-1, keepdims=True))
    probs: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return probs


def candidates(logits: Logits, params: SamplingParams) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that survive the filters and their probabilities, most likely first.

    Ties are in order of id. Top-p keeps the token that crosses the threshold. Raises EngineMisuse.
    """
    params.check()
    z = np.asarray(logits, np.float64)
    if not np.isfinite(z.max()):
        raise EngineMisuse("No token has a finite logit, or one is not a number.", "Check the logits.")
    if params.temperature == 0.0:
        return np.array([greedy(logits)]), np.ones(1)
    order = _most_likely(z, params.top_k)
    probs = softmax(z[order])
    if params.top_p < 1.0:
        keep = int(np.searchsorted(np.cumsum(probs), params.top_p)) + 1
        order, probs = order[:keep], probs[:keep]
    if params.min_p > 0.0:
        order = order[probs >= params.min_p * probs[0]]
    return order, softmax(z[order] / params.temperature)


def _most_likely(z: NDArray[np.float64], top_k: int) -> NDArray[np.int64]:
    """Ids by falling logit, ties by rising id; the first `top_k` of them (all when 0)."""
    ids = np.arange(len(z))
    if 0 < top_k < len(z):
        threshold = np.partition(z, len(z) - top_k)[len(z) - top_k]
        ids = np.flatnonzero(z >= threshold)
    order: NDArray[np.int64] = ids[np.argsort(-z[ids], kind="stable")]
    return order[:top_k] if top_k else order


def filtered_probs(logits: Logits, params: SamplingParams) -> NDArray[np.float64]:
    """Probabilities over the whole vocabulary after the filters, float64 [vocabulary], sum 1."""
    kept, probs = candidates(logits, params)
    full = np.zeros(len(logits))
    full[kept] = probs
    return full


class Sampler:
    """Draws tokens; the same seed and logits give the same tokens."""

    def __init__(self, params: SamplingParams, seed: int) -> None:
        params.check()
        self.params = params
        self._rng = np.random.default_rng(seed)

    def pick(self, logits: Logits) -> int:
        """One token, by inverse CDF over falling probability. Greedy draws no random number."""
        if self.params.temperature == 0.0:
            return greedy(logits)
        kept, probs = candidates(logits, self.params)
        index = int(np.searchsorted(np.cumsum(probs), self._rng.random(), side="right"))
        return int(kept[min(index, len(kept) - 1)])
