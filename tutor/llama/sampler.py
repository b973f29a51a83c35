"""From logits to a token: the most likely one, or one drawn after the filters, in llama.cpp's order.

Order (the default chain of llama.cpp, https://github.com/ggml-org/llama.cpp/tree/master/tools/server):
penalties, top-k, top-p, min-p, temperature last. All arithmetic is float64. What each setting means is
written in `tutor.serving.sampling`. Parameters are taken as checked (`SamplingParams.check`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tutor.llama.errors import EngineMisuse
from tutor.serving.sampling import SamplingParams

Logits = NDArray[np.float32] | NDArray[np.float64]
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

# Top-p sorts only the tokens near its cut, found by a histogram over the logits' distance from the highest.
FEW = 2048  # so few are sorted whole
BINS = 2048
SPAN = 40.0  # e^-40 of the highest probability; what is less likely still shares the last bin

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, made odd


class TokenRng:
    """A short stream of random numbers: splitmix64.

    Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, with the
    constants of https://prng.di.unimi.it/splitmix64.c.
    """

    __slots__ = ("_state",)

    def __init__(self, state: int) -> None:
        self._state = state & _MASK

    def random(self) -> float:
        """The next number from [0, 1), a multiple of 2^-53."""
        self._state = (self._state + _GAMMA) & _MASK
        return float((_mix(self._state) >> 11) * 2.0**-53)


def _mix(x: int) -> int:
    """A bijection of the 64-bit numbers in which each bit depends on all bits."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def rng_for(seed: int, index: int) -> TokenRng:
    """The random numbers for token `index` (from 0) of the output of a request with this seed.

    They depend on nothing else, so neither the batch around the request nor a preemption changes its text.
    """
    return TokenRng(_mix((_mix((seed + _GAMMA) & _MASK) + index * _GAMMA) & _MASK))


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token. With `SamplingParams.logprobs`: its logprob, and the most likely tokens with theirs.

    A logprob is the natural logarithm of the probability that the model itself gives, before penalties,
    filters and temperature (as vLLM and llama-server return it by default). `top` is in order of falling
    logprob, ties by id; the token itself is in it only when it is among the most likely.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def greedy(logits: Logits) -> int:
    """The most likely token; the lowest id among ties."""
    return int(np.argmax(logits))


def softmax(logits: Logits) -> Floats:
    """exp(z) / sum exp(z) along the last axis, shifted by the maximum so that nothing overflows."""
    z = np.asarray(logits, np.float64)
    weights = np.exp(z - z.max(axis=-1, keepdims=True))
    probs: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return probs


def penalised(
    logits: Logits, params: SamplingParams, history: Sequence[int] = (), num_prompt: int = 0
) -> Floats:
    """Logits after the penalties, float64 [vocabulary].

    history: the ids of prompt and output so far, of which the first `num_prompt` are the prompt. Without
    penalties it is not looked at, and the result may be `logits` itself. Raises EngineMisuse for an id that
    the vocabulary does not have.
    """
    if not params.has_penalties:
        return np.asarray(logits, np.float64)
    z = np.array(logits, np.float64)
    if params.repetition_penalty != 1.0 and params.penalty_last_n != 0:
        first = 0 if params.penalty_last_n < 0 else max(0, len(history) - params.penalty_last_n)
        seen, _ = _occurrences(history[first:], len(z))
        values, r = z[seen], params.repetition_penalty
        z[seen] = np.where(values > 0.0, values / r, values * r)
    if params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
        seen, counts = _occurrences(history[num_prompt:], len(z))
        z[seen] -= params.presence_penalty + params.frequency_penalty * counts
    return z


def _occurrences(tokens: Sequence[int], n_vocab: int) -> tuple[Ids, Ids]:
    """(ids, how often each occurs). Raises EngineMisuse for an id outside the vocabulary."""
    ids, counts = np.unique(np.asarray(tokens, np.int64), return_counts=True)
    if len(ids) and not 0 <= ids[0] <= ids[-1] < n_vocab:
        wrong = ids[0] if ids[0] < 0 else ids[-1]
        raise EngineMisuse(f"The history has a token {wrong}.", f"Ids go from 0 to {n_vocab - 1}.")
    return ids, counts


def distribution(
    logits: Logits, params: SamplingParams, history: Sequence[int] = (), num_prompt: int = 0
) -> tuple[Ids, Floats]:
    """What the next token is drawn from: the ids that are left, rising, and their probabilities (sum 1).

    logits: [vocabulary]; history, num_prompt: see `penalised`. Greedy leaves one token. Raises EngineMisuse
    when no token has a finite logit, one is not a number, or the history has an unknown id.
    """
    z = penalised(logits, params, history, num_prompt)
    if params.temperature == 0.0:
        return np.array([_most_likely(z)]), np.ones(1)
    peak = float(z[_most_likely(z)])
    ids = _filtered(z, peak, params)
    left = (z if ids is None else z[ids]) - peak
    if params.temperature != 1.0:
        with np.errstate(over="ignore"):  # to minus infinity, which is right
            left /= params.temperature
    weights = np.exp(left, out=left)
    weights /= weights.sum()
    return np.arange(len(z)) if ids is None else ids, weights


def _most_likely(z: Floats) -> int:
    token = greedy(z)
    if not math.isfinite(z[token]):
        raise EngineMisuse("No token has a finite logit, or one is not a number.", "Check the logits.")
    return token


def _filtered(z: Floats, peak: float, params: SamplingParams) -> Ids | None:
    """The ids that top-k, top-p and min-p leave, rising; None for all of them. peak: the highest logit."""
    ids: Ids | None = None
    if 0 < params.top_k < len(z):
        ids = _top_k(z, params.top_k)
    if params.top_p < 1.0:
        kept = _nucleus(z if ids is None else z[ids], peak, params.top_p)
        ids = kept if ids is None else ids[kept]
    if params.min_p > 0.0:
        kept = np.flatnonzero((z if ids is None else z[ids]) >= peak + math.log(params.min_p))
        ids = kept if ids is None else ids[kept]
    return ids


def _top_k(z: Floats, k: int) -> Ids:
    """Indices of the k largest values, rising."""
    return _largest(z, k, np.partition(z, len(z) - k)[len(z) - k])


def _largest(z: Floats, count: int, smallest: float) -> Ids:
    """Indices, rising, of the `count` largest values, given the smallest of those; of equals the first."""
    ids = np.flatnonzero(z >= smallest)
    surplus = len(ids) - count
    if surplus:
        tied = np.flatnonzero(z[ids] == smallest)
        ids = np.delete(ids, tied[-surplus:])
    return ids


def _nucleus(z: Floats, peak: float, top_p: float) -> Ids:
    """Indices, rising, of the fewest largest values that hold `top_p` of the probability."""
    depths = peak - z
    weights = np.exp(-depths)
    target = top_p * float(weights.sum())
    cut = _binned_cut(z, depths, weights, target) if len(z) > FEW else None
    count, smallest = cut or _sorted_cut(z, peak, target)
    return _largest(z, count, smallest)


def _sorted_cut(z: Floats, peak: float, target: float) -> tuple[int, float]:
    """(how many of the largest values hold the weight `target`, the smallest of them), by sorting all."""
    falling = np.sort(z)[::-1]
    sums = np.cumsum(np.exp(falling - peak))
    count = min(int(np.searchsorted(sums, target)) + 1, len(z))
    return count, float(falling[count - 1])


def _binned_cut(z: Floats, depths: Floats, weights: Floats, target: float) -> tuple[int, float] | None:
    """The same as `_sorted_cut`, sorting only the values near the cut: 0.3 ms instead of 2 for 49,152.

    A histogram of weight by depth below the peak tells in which bin the target is reached. None where the
    answer could hang on the order of a sum (rounding), or lies below all bins.
    """
    bins = (np.minimum(depths, SPAN) * (BINS / SPAN)).astype(np.int32)
    ends = np.cumsum(np.bincount(bins, weights, BINS + 1))
    at = int(np.searchsorted(ends, target))
    if at >= BINS:
        return None
    above = float(ends[at - 1]) if at else 0.0
    inside = bins == at
    order = np.argsort(depths[inside])
    sums = above + np.cumsum(weights[inside][order])
    place = int(np.searchsorted(sums, target))
    # Adding n numbers in any order is off by at most n * 2^-53 of their sum; two such sums are compared.
    doubt = 4 * len(z) * 2.0**-53 * float(ends[-1])
    before = float(sums[place - 1]) if place else above
    if place == len(sums) or sums[place] - target < doubt or target - before < doubt:
        return None
    return int(np.count_nonzero(bins < at)) + place + 1, float(z[inside][order[place]])


def filtered_probs(
    logits: Logits, params: SamplingParams, history: Sequence[int] = (), num_prompt: int = 0
) -> Floats:
    """`distribution` over the whole vocabulary, float64 [vocabulary], sum 1."""
    ids, probs = distribution(logits, params, history, num_prompt)
    full = np.zeros(len(logits))
    full[ids] = probs
    return full


def choose(ids: Ids, probs: Floats, rng: TokenRng | np.random.Generator) -> int:
    """One of `ids` by inverse CDF, in their order, with one number of `rng`. Probability 0 is never drawn."""
    ends = np.cumsum(probs)
    total = float(ends[-1])  # 1 but for rounding, which may also put the product at the very end
    at = min(rng.random() * total, math.nextafter(total, 0.0))
    return int(ids[ends.searchsorted(at, side="right")])


def draw(
    logits: Logits,
    params: SamplingParams,
    history: Sequence[int],
    num_prompt: int,
    rng: TokenRng | np.random.Generator,
) -> Drawn:
    """The next token, by `choose` from `distribution`; greedy takes no random number.

    logits: [vocabulary]; history: ids of prompt and output so far, the first `num_prompt` of them prompt.
    Raises EngineMisuse, see `distribution`.
    """
    if params.temperature == 0.0:
        token = _most_likely(penalised(logits, params, history, num_prompt))
    else:
        token = choose(*distribution(logits, params, history, num_prompt), rng)
    if params.logprobs == 0:
        return Drawn(token)
    logprob, top = _logprobs(logits, token, params.logprobs)
    return Drawn(token, logprob, top)


def _logprobs(logits: Logits, token: int, count: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The logprob of a token, and the `count` most likely tokens with theirs."""
    z = np.asarray(logits, np.float64)
    peak = float(z.max())
    log_sum = peak + math.log(float(np.exp(z - peak).sum()))
    ids = _top_k(z, min(count, len(z)))
    order = ids[np.argsort(-z[ids], kind="stable")]
    return float(z[token]) - log_sum, tuple((int(i), float(z[i]) - log_sum) for i in order)
