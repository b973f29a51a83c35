"""The sampler against llama.cpp's own samplers, on real logits.

llama.cpp computes in float32, we in float64. So a token that stands at a threshold may fall on the other side
there. `on_a_threshold` says how near is near: every difference has to lie inside that band.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tutor.llama import library
from tutor.llama.reference import ReferenceModel
from tutor.llama.sampler import choose, distribution, draw, penalised, rng_for, softmax
from tutor.serving.sampling import SamplingParams

# llama.cpp's top-p divides by a float32 sum over all tokens, added up one by one; its error, of the order of
# 1e-4, moves the threshold and is worked out for each row. This is what the rest of its arithmetic may add.
TOP_P_BAND = 1e-5  # of probability
MIN_P_BAND = 1e-5  # of a logit: the rounded logarithm that min-p adds to one
PROMPTS = ("The capital of France is", "Once upon a time, there was a", "def fibonacci(n):\n    return")
DRAWS = 20_000
TOKEN = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@pytest.fixture(scope="module")
def histories(reference: ReferenceModel) -> list[list[int]]:
    """Prompt and a few tokens after it, some more than once."""
    runs = [reference.tokenize(prompt) for prompt in PROMPTS]
    return [[*run, *run[-2:], run[-1], *range(900, 906)] for run in runs]


@pytest.fixture(scope="module")
def rows(reference: ReferenceModel) -> list[NDArray[np.float32]]:
    return [np.array(reference.next_logits(reference.tokenize(prompt))) for prompt in PROMPTS]


class LlamaChain:
    """llama.cpp's chain for the settings, up to but without the temperature."""

    def __init__(self, n_vocab: int, params: SamplingParams, history: Sequence[int], num_prompt: int) -> None:
        self.lib = library.load()
        # In this interface a negative window is off; the programs above it put the context's size there.
        last = len(history) if params.penalty_last_n < 0 else params.penalty_last_n
        output = history[num_prompt:]
        of_output = (1.0, params.frequency_penalty, params.presence_penalty)
        self.samplers = [
            self.penalties(history, n_vocab, last, params.repetition_penalty, 0.0, 0.0),
            self.penalties(output, n_vocab, len(output), *of_output),
        ]
        if params.top_k:
            self.samplers.append(self.lib.llama_sampler_init_top_k(params.top_k))
        if params.top_p < 1.0:
            self.samplers.append(self.lib.llama_sampler_init_top_p(params.top_p, 1))
        if params.min_p > 0.0:
            self.samplers.append(self.lib.llama_sampler_init_min_p(params.min_p, 1))

    def penalties(self, tokens: Sequence[int], *settings: float) -> Any:
        """settings: vocabulary, window, repetition, frequency, presence."""
        sampler = self.lib.llama_sampler_init_penalties(*settings)
        for token in tokens:
            self.lib.llama_sampler_accept(sampler, token)
        return sampler

    def add(self, sampler: Any) -> LlamaChain:
        self.samplers.append(sampler)
        return self

    def apply(self, row: NDArray[np.float32]) -> NDArray[Any]:
        """The tokens that are left, as records of (id, logit, p), by rising id; the samplers are freed."""
        tokens = np.zeros(len(row), TOKEN)
        tokens["id"], tokens["logit"] = np.arange(len(row)), row
        pointer = tokens.ctypes.data_as(self.lib.llama_token_data_p)
        array = self.lib.llama_token_data_array(data=pointer, size=len(row), selected=-1, sorted=False)
        for sampler in self.samplers:
            self.lib.llama_sampler_apply(sampler, ctypes.byref(array))
            self.lib.llama_sampler_free(sampler)
        left = tokens[: array.size]
        return left[np.argsort(left["id"])]


def final(
    row: NDArray[np.float32], params: SamplingParams, history: Sequence[int] = (), num_prompt: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """llama.cpp's ids and the probabilities that its `dist` sampler draws from."""
    chain = LlamaChain(len(row), params, history, num_prompt)
    chain.add(chain.lib.llama_sampler_init_temp(params.temperature))
    left = chain.add(chain.lib.llama_sampler_init_dist(1)).apply(row)
    return left["id"].astype(np.int64), left["p"].astype(np.float64)


def error_of_float32_sum(z: NDArray[np.float64]) -> float:
    """The relative error of the sum of exp(z), z in llama.cpp's order, when it is added up in float32."""
    total = np.cumsum(np.exp((z - z.max()).astype(np.float32)), dtype=np.float32)[-1]
    return abs(float(total) / float(np.exp(z - z.max()).sum()) - 1.0)


def on_a_threshold(
    row: NDArray[Any], params: SamplingParams, history: Sequence[int], prompt: int
) -> set[int]:
    """Tokens that may be kept by the one and dropped by the other."""
    z = penalised(row, params, history, prompt)
    order = np.argsort(-z, kind="stable")
    within: set[int] = set()
    left = z
    if params.top_k:
        edge = z[order[params.top_k - 1]]
        within |= set(np.flatnonzero(np.abs(z - edge) <= abs(edge) * 2.0**-22).tolist())  # equal in float32
        order = order[: params.top_k]
        left = z[order]
    if params.top_p < 1.0:
        before = np.cumsum(softmax(z[order]))[:-1]  # what the tokens above the second, the third, … hold
        near = np.abs(before - params.top_p) <= TOP_P_BAND + error_of_float32_sum(left)
        within |= set(order[1:][near].tolist())
    if params.min_p > 0.0:
        edge = z.max() + math.log(params.min_p)
        within |= set(np.flatnonzero(np.abs(z - edge) <= MIN_P_BAND).tolist())
    return within


def assert_same_survivors(
    row: NDArray[np.float32], params: SamplingParams, history: Sequence[int] = (), num_prompt: int = 0
) -> bool:
    """Returns whether the sets are the very same."""
    ours = set(distribution(row, params, history, num_prompt)[0].tolist())
    theirs = set(LlamaChain(len(row), params, history, num_prompt).apply(row)["id"].tolist())
    assert ours and theirs
    assert ours ^ theirs <= on_a_threshold(row, params, history, num_prompt), params
    return ours == theirs


def test_each_filter_alone_keeps_the_same_tokens(rows: list[NDArray[np.float32]]) -> None:
    rng = np.random.default_rng(3)
    settings = [
        *(SamplingParams(1.0, top_k=int(k)) for k in rng.integers(1, 3000, 10)),
        *(SamplingParams(1.0, top_p=float(p)) for p in rng.uniform(0.02, 0.999, 16)),
        *(SamplingParams(1.0, min_p=float(p)) for p in 10.0 ** rng.uniform(-6, 0, 12)),
        SamplingParams(1.0, top_k=1),
        SamplingParams(1.0, min_p=1.0),
        SamplingParams(1.0, top_p=1e-6),
    ]
    same = [assert_same_survivors(row, params) for row in rows for params in settings]
    assert sum(same) >= 0.95 * len(same), "differences inside the band should be rare"


def random_settings(seed: int, count: int) -> list[SamplingParams]:
    rng = np.random.default_rng(seed)
    return [
        SamplingParams(
            temperature=float(rng.uniform(0.3, 2.0)),
            top_k=int(rng.choice([0, 5, 40, 400])),
            top_p=float(rng.choice([1.0, 0.5, 0.9, 0.97])),
            min_p=float(rng.choice([0.0, 0.01, 0.1])),
            repetition_penalty=float(rng.choice([1.0, 0.8, 1.1, 1.5])),
            presence_penalty=float(rng.choice([0.0, 0.6, -0.4])),
            frequency_penalty=float(rng.choice([0.0, 0.3, -0.2])),
            penalty_last_n=int(rng.choice([-1, 4, 64])),
        )
        for _ in range(count)
    ]


def test_the_whole_chain_keeps_the_same_tokens_with_the_same_probabilities(
    rows: list[NDArray[np.float32]], histories: list[list[int]], reference: ReferenceModel
) -> None:
    compared = 0
    for row, history, prompt in zip(rows, histories, PROMPTS, strict=True):
        num_prompt = len(reference.tokenize(prompt))
        for params in random_settings(5, 25):
            if not assert_same_survivors(row, params, history, num_prompt):
                continue
            compared += 1
            ids, probs = distribution(row, params, history, num_prompt)
            their_ids, their_probs = final(row, params, history, num_prompt)
            assert ids.tolist() == their_ids.tolist()
            assert probs == pytest.approx(their_probs, abs=1e-5, rel=1e-4), params
    assert compared >= 70


@pytest.mark.parametrize("last_n", [-1, 0, 1, 5, 64])
@pytest.mark.parametrize(
    ("repeat", "frequency", "presence"), [(1.3, 0.0, 0.0), (0.7, 0.5, -0.25), (1.0, 0.4, 0.9)]
)
def test_penalties_agree(
    rows: list[NDArray[np.float32]],
    histories: list[list[int]],
    last_n: int,
    repeat: float,
    frequency: float,
    presence: float,
) -> None:
    params = SamplingParams(
        repetition_penalty=repeat,
        frequency_penalty=frequency,
        presence_penalty=presence,
        penalty_last_n=last_n,
    )
    for row, history in zip(rows, histories, strict=True):
        for num_prompt in (0, 3, len(history)):
            theirs = LlamaChain(len(row), params, history, num_prompt).apply(row)["logit"]
            assert np.abs(penalised(row, params, history, num_prompt) - theirs).max() <= 1e-5
        assert last_n == 0 or np.abs(penalised(row, params, history, 0) - row).max() > 0.1


def test_one_window_for_all_three_penalties_is_ours_when_it_holds_the_output(
    rows: list[NDArray[np.float32]], histories: list[list[int]]
) -> None:
    """What the documentation of SamplingParams says about llama.cpp's one sampler."""
    row, history, num_prompt = rows[0], histories[0], 4
    output = len(history) - num_prompt
    params = SamplingParams(
        repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.25, penalty_last_n=output
    )
    off = LlamaChain(len(row), SamplingParams(), (), 0)
    theirs = off.add(off.penalties(history, len(row), output, 1.2, 0.25, 0.5)).apply(row)["logit"]
    assert np.abs(penalised(row, params, history, num_prompt) - theirs).max() <= 1e-5


def test_greedy_is_llama_cpps(rows: list[NDArray[np.float32]]) -> None:
    for row in rows:
        chain = LlamaChain(len(row), SamplingParams(), (), 0)
        left = chain.add(chain.lib.llama_sampler_init_temp(0.0)).apply(row)
        drawn = draw(row, SamplingParams(), (), 0, rng_for(0, 0)).token
        assert left["id"][np.isfinite(left["logit"])].tolist() == [drawn]


def chi_squared_p(counts: NDArray[Any], expected: NDArray[np.float64]) -> float:
    """The chance of a fit as bad or worse; fields below 5 are put together.

    The tail of chi-squared with k + 2 degrees of freedom is that with k, plus one term
    (Abramowitz and Stegun, 26.4.4 and 26.4.5).
    """
    small = expected < 5.0
    observed = np.append(counts[~small], counts[small].sum())
    hoped = np.append(expected[~small], expected[small].sum())
    if hoped[-1] < 5.0:  # too few even together: add them to the smallest other field
        smallest = int(np.argmin(hoped[:-1]))
        observed[smallest] += observed[-1]
        hoped[smallest] += hoped[-1]
        observed, hoped = observed[:-1], hoped[:-1]
    k = len(hoped) - 1
    assert k >= 1, "one field fits always"
    half = float(((observed - hoped) ** 2 / hoped).sum()) / 2.0
    first = 1 if k % 2 else 2
    chance = math.erfc(math.sqrt(half)) if first == 1 else math.exp(-half)
    for degrees in range(first, k, 2):
        chance += (
            math.exp(degrees / 2 * math.log(half) - half - math.lgamma(degrees / 2 + 1)) if half else 0.0
        )
    return chance


def test_the_tail_of_chi_squared_is_that_of_the_tables() -> None:
    """Counts (100 + d, 100 - d, 100 …) with chi-squared 2 d^2 / 100, against tabled 5 % points."""
    for k, point in ((1, 3.841), (2, 5.991), (5, 11.070), (30, 43.773)):
        d = math.sqrt(point * 50.0)
        counts = np.full(k + 1, 100.0)
        counts[:2] += d, -d
        assert chi_squared_p(counts, np.full(k + 1, 100.0)) == pytest.approx(0.05, abs=2e-5)


CHAINS = (
    SamplingParams(0.7, top_k=100, seed=1),
    SamplingParams(1.5, top_p=0.9, seed=2),
    SamplingParams(1.2, min_p=0.02, seed=3),
    SamplingParams(0.9, top_k=60, top_p=0.97, min_p=0.005, seed=4),
    SamplingParams(1.1, 50, 0.98, 0.0, 5, 1.3, 0.5, 0.2, penalty_last_n=8),
    SamplingParams(2.0, min_p=0.01, frequency_penalty=-0.5, presence_penalty=-1.0, seed=6),
)


@pytest.mark.parametrize("params", CHAINS)
def test_draws_follow_llama_cpps_distribution(
    rows: list[NDArray[np.float32]], histories: list[list[int]], params: SamplingParams
) -> None:
    for row, history in zip(rows, histories, strict=True):
        ids, probs = distribution(row, params, history, 4)
        drawn = [choose(ids, probs, rng_for(params.seed, i)) for i in range(DRAWS)]
        for i in range(0, DRAWS, DRAWS // 20):  # and `draw` is nothing but these two
            assert draw(row, params, history, 4, rng_for(params.seed, i)).token == drawn[i]
        their_ids, their_probs = final(row, params, history, 4)
        assert set(ids.tolist()) ^ set(their_ids.tolist()) <= on_a_threshold(row, params, history, 4)
        expected = np.zeros(len(row))
        expected[their_ids] = their_probs / their_probs.sum() * DRAWS
        union = np.union1d(ids, their_ids)
        assert chi_squared_p(np.bincount(drawn, minlength=len(row))[union], expected[union]) > 1e-4


def test_the_fit_notices_a_wrong_temperature(
    rows: list[NDArray[np.float32]], histories: list[list[int]]
) -> None:
    """The test above can fail: draws at 0.9 of the temperature do not pass for the right ones."""
    params = SamplingParams(1.0, top_k=40)
    ids, probs = distribution(rows[1], replace(params, temperature=0.9))
    counts = np.bincount([choose(ids, probs, rng_for(0, i)) for i in range(DRAWS)], minlength=len(rows[1]))
    their_ids, their_probs = final(rows[1], params)
    assert chi_squared_p(counts[their_ids], their_probs / their_probs.sum() * DRAWS) < 1e-4
