"""Verification: greedy equality, and that rejection sampling leaves the target's distribution as it is.

Chi-squared tests use fixed seeds and fail at p < 1e-4; a biased acceptance is caught by the same tests (see
`test_the_test_can_fail`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tutor.llama.errors import EngineMisuse
from tutor.llama.verify import Distribution, verify_choices, verify_greedy, verify_sampled

# The value that chi-squared passes with probability 1e-4, by degrees of freedom.
LIMIT = {1: 15.14, 2: 18.42, 3: 21.11, 4: 23.51, 5: 25.74, 7: 29.88, 8: 31.83, 15: 44.26}
DRAWS = 8_000


def row(*values: float) -> NDArray[np.float64]:
    probs = np.array(values)
    return probs / probs.sum()


def sparse(probs: NDArray[np.float64], order: Sequence[int]) -> Distribution:
    """The same distribution as pairs in another order, without what is 0."""
    ids = np.array([i for i in order if probs[i] > 0])
    return ids, probs[ids]


def chi_squared(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> tuple[float, int]:
    assert counts[expected == 0].sum() == 0
    counts, expected = counts[expected > 0], expected[expected > 0]
    return float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1


def assert_follows(draws: Sequence[int], p: NDArray[np.float64]) -> None:
    value, freedom = chi_squared(np.bincount(draws, minlength=len(p)), p * len(draws))
    assert value < LIMIT[freedom]


# --- greedy -----------------------------------------------------------------------------------


def test_greedy_accepts_up_to_the_first_miss() -> None:
    rows = np.eye(5, dtype=np.float32)[[3, 1, 4]]
    assert verify_greedy(rows, [3, 1]) == [3, 1, 4]  # all, and the one after them
    assert verify_greedy(rows, [3, 2]) == [3, 1]
    assert verify_greedy(rows, [0, 1]) == [3]  # right again after a miss does not count
    assert verify_greedy(rows[:1], []) == [3]
    assert verify_greedy(np.zeros((2, 4), np.float32), [0]) == [0, 0]  # ties: the lowest id
    for wrong in ([], [1], [1, 2, 3]):
        with pytest.raises(EngineMisuse, match="rows"):
            verify_greedy(rows, wrong)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=7).flatmap(
        lambda best: st.tuples(st.just(best), st.lists(st.integers(0, 3), max_size=len(best) - 1))
    )
)
def test_greedy_equals_one_token_a_pass(case: tuple[list[int], list[int]]) -> None:
    """What is emitted is a prefix of the model's own choices, one longer than the drafts that agree."""
    best, drafts = case
    rows = np.eye(4)[best[: len(drafts) + 1]]
    emitted = verify_greedy(rows, drafts)
    agree = next((i for i, d in enumerate(drafts) if d != best[i]), len(drafts))
    assert emitted == best[: agree + 1]


def test_choices_are_asked_for_in_order_and_no_further_than_needed() -> None:
    asked: list[int] = []

    def choose(i: int) -> int:
        asked.append(i)
        return [5, 6, 7][i]

    assert verify_choices(choose, [5, 9]) == [5, 6]
    assert asked == [0, 1]


# --- sampled ----------------------------------------------------------------------------------

TARGETS = {
    "skewed": row(60, 25, 10, 4, 1),
    "flat": row(1, 1, 1, 1, 1),
    "filtered": row(5, 0, 3, 0, 2),
}
PROPOSALS = {
    "same": row(60, 25, 10, 4, 1),
    "reversed": row(1, 4, 10, 25, 60),
    "outside": row(0, 1, 0, 1, 0),
    "narrow": row(1, 0, 1, 0, 0),
}


def forms(i: int, probs: NDArray[np.float64]) -> Distribution:
    """Dense and sparse by turns."""
    return probs if i % 2 else sparse(probs, [3, 0, 4, 2, 1])


@pytest.mark.parametrize(
    ("target", "proposal"),
    [
        ("skewed", "reversed"),
        ("skewed", "same"),
        ("flat", "narrow"),
        ("filtered", "reversed"),
        ("filtered", "outside"),
    ],
)
def test_the_first_token_follows_p(target: str, proposal: str) -> None:
    p, q = TARGETS[target], PROPOSALS[proposal]
    p_forms, q_forms = [forms(i, p) for i in range(2)], [forms(i // 2, q) for i in range(4)]
    rng = np.random.default_rng([len(target), len(proposal)])
    drafts = rng.choice(5, size=DRAWS, p=q).tolist()
    emitted = [
        verify_sampled(lambda _, __, n=n: p_forms[n % 2], [draft], rng, [q_forms[n % 4]])  # type: ignore[misc]
        for n, draft in enumerate(drafts)
    ]
    assert_follows([tokens[0] for tokens in emitted], p)
    accepted = sum(len(tokens) == 2 for tokens in emitted) / DRAWS
    overlap = float(np.minimum(p, q).sum())  # theorem 3.5 and corollary 3.6 of the source
    assert abs(accepted - overlap) <= 4 * (overlap * (1 - overlap) / DRAWS) ** 0.5


@pytest.mark.parametrize(("target", "draft"), [("skewed", 0), ("skewed", 4), ("flat", 2), ("filtered", 1)])
def test_a_draft_that_was_named_for_certain(target: str, draft: int) -> None:
    p = TARGETS[target]
    p_forms = [forms(i, p) for i in range(2)]
    rng = np.random.default_rng(draft)
    emitted = [
        verify_sampled(lambda _, __, n=n: p_forms[n % 2], [draft], rng)  # type: ignore[misc]
        for n in range(DRAWS)
    ]
    assert_follows([tokens[0] for tokens in emitted], p)
    accepted = sum(len(tokens) == 2 for tokens in emitted) / DRAWS
    assert abs(accepted - p[draft]) <= 4 * (p[draft] * (1 - p[draft]) / DRAWS) ** 0.5


@pytest.mark.parametrize("draft", range(5))
def test_a_certain_target_is_greedy(draft: int) -> None:
    p = row(0, 0, 1, 0, 0)
    for form in (p, forms(0, p)):
        emitted = verify_sampled(lambda i, _, f=form: f, [draft], np.random.default_rng(draft))  # type: ignore[misc]
        assert emitted == ([2, 2] if draft == 2 else [2])


def test_the_test_can_fail() -> None:
    """Drawing from p after a rejection, not from the residual, is caught."""
    p, q = TARGETS["skewed"], PROPOSALS["reversed"]
    rng = np.random.default_rng(1)
    drafts = rng.choice(5, size=DRAWS, p=q)
    biased = np.where(rng.random(DRAWS) * q[drafts] < p[drafts], drafts, rng.choice(5, size=DRAWS, p=p))
    value, freedom = chi_squared(np.bincount(biased, minlength=5), p * DRAWS)
    assert value > LIMIT[freedom]


# A tiny Markov model of three tokens, and a drafter with a chain of its own.
CHAIN = np.array([row(6, 3, 1), row(1, 2, 7), row(0, 5, 5)])
GUESS = np.array([row(2, 2, 6), row(4, 4, 2), row(3, 3, 4)])
NAMED = [2, 1, 1]  # a drafter that names one token after each


def markov(last: int, drafts: Sequence[int]) -> Callable[[int, Sequence[int]], Distribution]:
    def probs(i: int, accepted: Sequence[int]) -> Distribution:
        assert list(accepted) == list(drafts[:i])
        return CHAIN[[last, *accepted][-1]]

    return probs


def generate(last: int, count: int, k: int, rng: random.Random, named: bool) -> list[int]:
    """Tokens of the chain by passes of k drafts; what a pass emits beyond `count` is cut off."""
    out: list[int] = []
    while len(out) < count:
        drafts: list[int] = []
        rows: list[Distribution] = []
        for _ in range(k):
            before = [last, *out, *drafts][-1]
            rows.append(GUESS[before])
            drafts.append(NAMED[before] if named else rng.choices(range(3), GUESS[before].tolist())[0])
        probs = markov([last, *out][-1], drafts)
        out += verify_sampled(probs, drafts, rng, None if named else rows)
    return out[:count]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_pairs_of_tokens_follow_the_chain(k: int, named: bool) -> None:
    """The joint distribution of two tokens: accepted drafts, residuals and the token after all drafts."""
    rng = random.Random(10 * k + named)
    runs = DRAWS // 3
    pairs = [a * 3 + b for a, b in (generate(0, 2, k, rng, named) for _ in range(runs))]
    expected = (CHAIN[0][:, None] * CHAIN).ravel() * runs
    value, freedom = chi_squared(np.bincount(pairs, minlength=9), expected)
    assert value < LIMIT[freedom]


def test_choosing_by_drawing_is_rejection_sampling_and_keeps_the_text() -> None:
    """Named drafts, one random number a place: `verify_choices` writes the text of plain decoding."""

    def draw(seed: int, place: int, last: int) -> int:
        return random.Random(1000 * seed + place).choices(range(3), CHAIN[last].tolist())[0]

    for seed in range(200):
        plain = [0]
        for place in range(6):
            plain.append(draw(seed, place, plain[-1]))
        out = [0]
        while len(out) < 7:
            drafts = [NAMED[out[-1]], 1]
            before, place = [out[-1], *drafts], len(out) - 1
            out += verify_choices(lambda i, s=seed, b=before, p=place: draw(s, p + i, b[i]), drafts)  # type: ignore[misc]
        assert out[:7] == plain


def test_the_edges_of_the_random_number() -> None:
    class Fixed:
        def __init__(self, *numbers: float) -> None:
            self.numbers = list(numbers)

        def random(self) -> float:
            return self.numbers.pop(0)

    almost = float(np.nextafter(1.0, 0.0))
    p = row(0, 1, 1, 0)
    assert verify_sampled(lambda i, _: p, [], Fixed(0.0)) == [1]
    assert verify_sampled(lambda i, _: p, [], Fixed(almost)) == [2]
    assert verify_sampled(lambda i, _: p, [0], Fixed(0.0, 0.0)) == [1]  # p(x) = 0 is never accepted
    assert verify_sampled(lambda i, _: p, [1], Fixed(almost, almost)) == [2]
    assert verify_sampled(lambda i, _: p, [1], Fixed(almost, 0.5), [p]) == [1, 2]  # p = q: always accepted
    short = p * (1 - 1e-12)  # a rejection by rounding leaves nothing over; p steps in
    assert verify_sampled(lambda i, _: short, [1], Fixed(almost, 0.0), [p]) == [1]


def test_drafts_and_their_distributions_have_to_match() -> None:
    p = row(1, 1)
    rng = np.random.default_rng(0)
    with pytest.raises(EngineMisuse, match="1 drafts came with 2"):
        verify_sampled(lambda i, _: p, [0], rng, [p, p])
    with pytest.raises(EngineMisuse, match="probability 0"):
        verify_sampled(lambda i, _: p, [0], rng, [row(0, 1)])
