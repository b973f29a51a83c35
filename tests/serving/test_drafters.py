"""Drafters against a plain reading of what they promise; the account of speculation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutor.serving.errors import ConfigError, IntegrityError
from tutor.serving.request import Request
from tutor.serving.speculative import (
    BadDraft,
    CallbackDrafter,
    Drafter,
    OracleDrafter,
    PromptLookupDrafter,
    SpeculationStats,
)

small = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def request(tokens: list[int], request_id: str = "r") -> Request:
    return Request(request_id, tokens, max_tokens=1000)


def looked_up(tokens: list[int], longest: int, shortest: int, k: int) -> list[int]:
    """The definition, read plainly: scan backwards for the last n-gram, then copy token by token."""
    for n in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[-n:]:
                text = list(tokens)
                for i in range(k):
                    text.append(text[end + i])
                return text[len(tokens) :]
    return []


def test_prompt_lookup_copies_what_followed() -> None:
    drafter = PromptLookupDrafter(ngram_max=2, ngram_min=2)
    assert drafter.propose(request([1, 2, 3, 4, 5, 1, 2]), 3) == [3, 4, 5]
    assert drafter.propose(request([1, 2, 8, 1, 2, 9, 1, 2]), 1) == [9]  # the latest occurrence
    assert drafter.propose(request([1, 2, 3]), 3) == []
    assert drafter.propose(request([7, 7, 7]), 4) == [7, 7, 7, 7]  # on into its own drafts
    assert PromptLookupDrafter(2, 1).propose(request([5, 1, 9, 5]), 2) == [1, 9]  # the shorter n-gram
    assert drafter.propose(request([1, 2, 3, 1, 2]), 0) == []
    for wrong in ((0, 0), (2, 3), (3, 0)):
        with pytest.raises(ConfigError, match="ngram_min"):
            PromptLookupDrafter(*wrong)


@given(
    st.integers(1, 3),
    st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from("ab"), small, st.integers(0, 5)), max_size=25),
    st.lists(st.integers(0, 24), max_size=3),
)
def test_the_index_grows_with_the_text(
    shortest: int, more: int, operations: list[tuple[str, list[int], int]], forgotten: list[int]
) -> None:
    drafter = PromptLookupDrafter(shortest + more, shortest)
    requests: dict[str, Request] = {}
    for step, (name, tokens, k) in enumerate(operations):
        if step in forgotten:
            drafter.forget(name)
            requests.pop(name, None)
        if name in requests:
            requests[name].token_ids.extend(tokens)
        else:
            requests[name] = request(tokens, name)
        expected = looked_up(requests[name].token_ids, shortest + more, shortest, k)
        assert drafter.propose(requests[name], k) == expected
        drafter.check_integrity()


def test_an_id_that_is_used_again_starts_anew() -> None:
    drafter = PromptLookupDrafter(1, 1)
    assert drafter.propose(request([1, 2, 1]), 1) == [2]
    assert drafter.propose(request([1, 3, 1, 4, 4, 9]), 1) == []
    assert drafter.propose(request([1, 3, 1]), 1) == [3]
    drafter.check_integrity()


def test_a_call_looks_at_new_tokens_only() -> None:
    """Counted, not timed: what is read of the list after the first call does not depend on its length."""

    class Counting(list[int]):
        reads = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            type(self).reads += 1
            return super().__getitem__(key)

    drafter = PromptLookupDrafter(3, 1)
    long = request([0])
    long.token_ids = Counting(range(20_000))
    drafter.propose(long, 4)
    Counting.reads = 0
    long.token_ids.append(17)
    assert drafter.propose(long, 4) == [18, 19, 20, 21]
    assert Counting.reads <= 3 + 3 + 4


def test_integrity_notices_a_text_that_changed() -> None:
    drafter = PromptLookupDrafter(1, 1)
    changed = request([1, 2, 3])
    drafter.propose(changed, 1)
    changed.token_ids[0] = 9
    with pytest.raises(IntegrityError):
        drafter.check_integrity()


def test_the_oracle_is_right_as_often_as_it_is_told() -> None:
    answer = list(range(100, 4100))
    for alpha in (0.0, 0.3, 0.8, 1.0):
        oracle = OracleDrafter({"r": answer}, alpha, vocab_size=5000, seed=3)
        drafts = oracle.propose(request([1]), len(answer))
        hits = np.array(drafts) == answer
        deviation = (alpha * (1 - alpha) / len(answer)) ** 0.5
        assert abs(hits.mean() - alpha) <= 4 * deviation
        pairs = (hits[1:] & hits[:-1]).mean()  # independent from place to place
        assert abs(pairs - alpha**2) <= 0.03
        assert all(0 <= token < 5000 for token in drafts)
    assert not (
        np.array(OracleDrafter({"r": [0, 1] * 500}, 0.0, 2).propose(request([1]), 1000))[::2] == 0
    ).any()


@given(st.integers(0, 40), st.integers(0, 8), st.floats(0, 1), st.floats(0, 1))
def test_the_oracle_does_not_depend_on_how_it_is_asked(place: int, k: int, low: float, high: float) -> None:
    low, high = sorted((low, high))
    answer = {"r": list(range(40)), "s": list(range(40))}
    oracle = OracleDrafter(answer, low, 50, seed=1)
    whole = oracle.propose(request([9]), 40)
    later = request([9, *range(place)])
    later.prompt_token_ids = [9]
    assert oracle.propose(later, k) == whole[place : place + k]
    bolder = OracleDrafter(answer, high, 50, seed=1).propose(request([9]), 40)
    assert all(b == i for i, (a, b) in enumerate(zip(whole, bolder, strict=True)) if a == i)
    assert oracle.propose(request([9], "unknown"), 4) == []


def test_the_oracle_has_a_coin_of_its_own_for_each_request_and_seed() -> None:
    answers = {"r": list(range(64)), "s": list(range(64))}
    drafts = [OracleDrafter(answers, 0.5, 99, seed).propose(request([1], name), 64)
              for name, seed in (("r", 0), ("s", 0), ("r", 1))]  # fmt: skip
    assert drafts[0] != drafts[1] != drafts[2] != drafts[0]
    for alpha, vocabulary in ((-0.1, 9), (1.1, 9), (0.5, 1)):
        with pytest.raises(ConfigError):
            OracleDrafter(answers, alpha, vocabulary)


def test_a_callback_is_held_to_ids() -> None:
    seen: list[Sequence[int]] = []

    def guess(history: Sequence[int], k: int) -> Sequence[int]:
        seen.append(history)
        return [np.int64(len(history)), k, 5, 6, 7]  # type: ignore[list-item]

    asked = request([1, 2])
    drafter: Drafter = CallbackDrafter(guess, vocab_size=10, name="mine")
    assert (drafter.propose(asked, 3), drafter.name) == ([2, 3, 5], "mine")
    assert seen == [[1, 2]]
    assert seen[0] is not asked.token_ids
    for wrong in (10, -1, 2.5, "a", None):
        with pytest.raises(BadDraft, match="returned"):
            CallbackDrafter(lambda h, k, w=wrong: [w], 10).propose(asked, 1)  # type: ignore[misc]


def test_stats_of_the_curriculum() -> None:
    """Passes by accepted drafts [39, 1, 0, 3] at 3 drafts each."""
    stats = SpeculationStats()
    for accepted, count in enumerate([39, 1, 0, 3]):
        for _ in range(count):
            stats.record(3, accepted)
    assert (stats.drafted, stats.accepted, stats.passes, stats.emitted, stats.wasted) == (
        129,
        10,
        43,
        53,
        119,
    )
    assert stats.histogram == [39, 1, 0, 3]
    assert stats.acceptance_rate == pytest.approx(10 / 129)
    assert stats.mean_acceptance_length == pytest.approx(1 + 10 / 43)
    assert stats.acceptance_at == pytest.approx([4 / 43, 3 / 43, 3 / 43])
    stats.check_integrity()


def test_stats_without_drafts_and_at_the_end_of_a_request() -> None:
    stats = SpeculationStats()
    assert (stats.acceptance_rate, stats.mean_acceptance_length, stats.acceptance_at) == (0.0, 1.0, [])
    stats.record(0, 0)
    assert (stats.acceptance_rate, stats.mean_acceptance_length, stats.wasted) == (0.0, 1.0, 0)
    stats.record(4, 3, emitted=2)  # the second accepted draft ended the request
    assert (stats.emitted, stats.wasted) == (3, 3)
    stats.check_integrity()
    for wrong in ((1, 2, None), (1, -1, None), (2, 1, 3), (2, 1, 0)):
        with pytest.raises(ConfigError):
            stats.record(*wrong)
    stats.histogram[0] += 1
    with pytest.raises(IntegrityError):
        stats.check_integrity()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 7)), max_size=30))
def test_stats_add_up(passes: list[tuple[int, int, int]]) -> None:
    stats = SpeculationStats()
    rows = [(drafted, min(drafted, a), min(drafted, a, e - 1) + 1) for drafted, a, e in passes]
    for row in rows:
        stats.record(*row)
        stats.check_integrity()
    assert stats.emitted == sum(emitted for _, _, emitted in rows)
    assert stats.wasted == sum(1 + drafted - emitted for drafted, _, emitted in rows)
    assert [int(n) for n in stats.drafted_at] == [
        sum(d > i for d, _, _ in rows) for i in range(len(stats.drafted_at))
    ]
