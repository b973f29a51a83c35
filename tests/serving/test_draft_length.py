"""The formulas, and the adaptive length in simulated traffic with a known alpha."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.serving.draft_length import (
    AdaptiveDraftLength,
    Cost,
    DraftLength,
    FixedDraftLength,
    batch_speedup,
    best_draft_length,
    compute_ratio,
    expected_tokens,
    measured_cost,
    speedup,
)
from tutor.serving.errors import ConfigError, IntegrityError

CPU = measured_cost({1: 1.0, 5: 3.5, 20: 12.0})  # five rows cost 3.5 times one


def gpu(rows: int) -> float:
    """A roofline: reading the weights lasts as long as computing 295 rows."""
    return float(max(295, rows))


def test_formulas_at_the_values_of_the_paper() -> None:
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616)
    assert speedup(0.8, 4, 0.05) == pytest.approx(2.80, abs=0.005)
    assert compute_ratio(0.8, 4, 0.05) == pytest.approx(1.55, abs=0.005)
    assert expected_tokens(0.6, 4) == pytest.approx(2.31, abs=0.005)
    assert speedup(0.6, 4, 0.05) == pytest.approx(1.92, abs=0.005)
    assert compute_ratio(0.6, 4, 0.05) == pytest.approx(2.26, abs=0.005)
    assert expected_tokens(0.8, 10_000) == pytest.approx(5.0)
    assert (best_draft_length(0.8, 0.05), best_draft_length(0.6, 0.05)) == (8, 4)
    assert best_draft_length(0.04, 0.05) == 0
    assert (expected_tokens(1.0, 4), expected_tokens(0.0, 4), expected_tokens(0.5, 0)) == (5.0, 1.0, 1.0)
    for alpha, k in ((-0.1, 1), (1.1, 1), (math.nan, 1), (0.5, -1)):
        with pytest.raises(ConfigError):
            expected_tokens(alpha, k)


@given(st.floats(0, 1), st.integers(0, 20))
def test_expected_tokens_is_the_sum_of_the_chances(alpha: float, k: int) -> None:
    assert expected_tokens(alpha, k) == pytest.approx(math.fsum(alpha**i for i in range(k + 1)), rel=1e-6)


def test_a_batch_changes_the_answer() -> None:
    assert batch_speedup(0.8, 4, 1, CPU) == pytest.approx(0.96, abs=0.005)
    assert batch_speedup(0.9, 4, 1, CPU) == pytest.approx(1.17, abs=0.005)
    assert batch_speedup(0.8, 4, 1, gpu) == pytest.approx(3.3616)
    assert batch_speedup(0.8, 4, 295, gpu) == pytest.approx(3.3616 / 5)
    assert batch_speedup(0.8, 4, 1, gpu, draft_cost=0.05 * 295) == pytest.approx(speedup(0.8, 4, 0.05))


def test_a_cost_from_points() -> None:
    assert [CPU(n) for n in (1, 3, 5, 20)] == pytest.approx([1.0, 2.25, 3.5, 12.0])
    assert CPU(35) == pytest.approx(20.5)
    assert [measured_cost({4: 2.0, 8: 3.0})(n) for n in (1, 4, 6)] == [2.0, 2.0, 2.5]
    assert [measured_cost({4: 2.0})(n) for n in (1, 4, 8)] == [2.0, 2.0, 4.0]
    for wrong in ({}, {0: 1.0}, {1: 0.0}):
        with pytest.raises(ConfigError):
            measured_cost(wrong)


def simulate(
    length: DraftLength,
    cost: Cost,
    alphas: Sequence[float],
    tokens: int,
    seed: int = 0,
    new_request_every: int = 10**9,
) -> float:
    """Tokens for each unit of time in a batch of len(alphas) requests, each accepting with its own alpha."""
    rng = random.Random(seed)
    batch, emitted, spent, ids = len(alphas), 0, 0.0, list(range(len(alphas)))
    written = [0] * batch
    steps = 0
    while emitted < tokens:
        steps += 1
        drafts = [length.choose(f"r{ids[i]}", batch, 8) for i in range(batch)]
        spent += cost(batch + sum(drafts))
        for i, k in enumerate(drafts):
            accepted = next((j for j in range(k) if rng.random() >= alphas[i]), k)
            length.observe(f"r{ids[i]}", k, accepted)
            emitted, written[i] = emitted + accepted + 1, written[i] + accepted + 1
            if written[i] >= new_request_every:
                length.forget(f"r{ids[i]}")
                ids[i], written[i] = max(ids) + 1, 0
        if steps % 16 == 0:
            length.check_integrity()
    return emitted / spent


def best_fixed(cost: Cost, alpha: float, batch: int) -> float:
    """Tokens for each unit of time at the best constant length, on average."""
    return max(batch * expected_tokens(alpha, k) / cost(batch * (1 + k)) for k in range(9))


@pytest.mark.parametrize("cost", [CPU, gpu])
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("life", [25, 10**9])
def test_hostile_traffic_costs_two_percent_at_most(cost: Cost, batch: int, life: int) -> None:
    """Nothing is ever accepted, in long requests and in short ones."""
    tokens = max(3000, 60 * batch)
    plain = simulate(FixedDraftLength(0), cost, [0.0] * batch, tokens)
    adaptive = simulate(AdaptiveDraftLength(cost), cost, [0.0] * batch, tokens, new_request_every=life)
    assert adaptive >= plain / 1.02


@pytest.mark.parametrize("cost", [CPU, gpu])
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.95])
def test_friendly_traffic_keeps_most_of_the_best_fixed_length(cost: Cost, batch: int, alpha: float) -> None:
    adaptive = simulate(AdaptiveDraftLength(cost), cost, [alpha] * batch, 3000)
    assert adaptive >= 0.85 * best_fixed(cost, alpha, batch)


def test_requests_have_lengths_of_their_own() -> None:
    """One request accepts nearly all, seven nothing: at best (7 + 7.4) / 16 against 8 / 12 tokens a unit.

    With one length for all, no length is better than 8 / 12: at 8 drafts it is 14.4 / 44.
    """

    def cost(rows: int) -> float:
        return 8.0 + 0.5 * rows

    length = AdaptiveDraftLength(cost)
    mixed = [0.95] + [0.0] * 7
    assert simulate(length, cost, mixed, 3000) > 1.25 * 8 / 12
    assert length.alpha("r0") > 0.8
    assert max(length.alpha(f"r{i}") for i in range(1, 8)) < 0.2


def test_it_recovers_when_alpha_rises_and_stops_when_it_falls() -> None:
    length = AdaptiveDraftLength(CPU)

    def steps_until(done: Callable[[int], bool], accept: bool) -> int:
        for step in range(400):
            k = length.choose("r", 1, 8)
            if done(k):
                return step
            length.observe("r", k, k if accept else 0)
        return 400

    for _ in range(3000):
        length.observe("r", length.choose("r", 1, 8), 0)
    assert length.alpha("r") < 0.01
    assert steps_until(lambda k: k >= 4, accept=True) < 130
    assert steps_until(lambda k: k == 0, accept=False) < 20


def test_a_probe_that_gets_no_drafts_costs_nothing() -> None:
    length = AdaptiveDraftLength(CPU, prior=0.0)
    first = next(step for step in range(500) if length.choose("r", 1, 8))
    length.observe("r", 0, 0)
    assert length.choose("r", 1, 8) == 1  # still due
    length.observe("r", 1, 0)
    assert length.choose("r", 1, 8) == 0  # paid
    again = next(step for step in range(500) if length.choose("r", 1, 8))
    assert 50 <= again <= first + 1


def test_short_requests_are_probed_too() -> None:
    """None lives long enough to save up for a probe, so each leaves its credit to the next."""
    length = AdaptiveDraftLength(CPU, prior=0.0)
    probes = 0
    for life in range(100):
        for _ in range(20):
            k = length.choose(f"r{life}", 1, 8)
            length.observe(f"r{life}", k, 0)
            probes += k
        length.forget(f"r{life}")
        length.check_integrity()
    assert 20 <= probes <= 2000 * 0.02


def test_a_big_batch_turns_it_off() -> None:
    length = AdaptiveDraftLength(gpu)
    for _ in range(100):
        length.observe("r", 8, 5)  # alpha 5/6
    assert length.choose("r", 1, 8) == 8
    assert length.choose("r", 1, 3) == 3
    assert length.choose("r", 1, 0) == 0
    assert 0 < length.choose("r", 64, 8) < 8
    assert length.choose("r", 400, 8) == 0
    assert length.choose("r", 1, 8) == 8


def test_fixed_and_impossible_settings() -> None:
    fixed = FixedDraftLength(4)
    assert [fixed.choose("r", 9, limit) for limit in (9, 2, 0, -1)] == [4, 2, 0, 0]
    for make in (
        lambda: FixedDraftLength(-1),
        lambda: AdaptiveDraftLength(CPU, k_max=-1),
        lambda: AdaptiveDraftLength(CPU, prior=2.0),
        lambda: AdaptiveDraftLength(CPU, decay=1.0),
        lambda: AdaptiveDraftLength(CPU, probe_share=-0.1),
        lambda: AdaptiveDraftLength(CPU, draft_cost=-1.0),
        lambda: AdaptiveDraftLength(CPU).observe("r", 1, 2),
    ):
        with pytest.raises(ConfigError):
            make()
    broken = AdaptiveDraftLength(CPU)
    broken.choose("r", 1, 8)
    broken._tracks["r"].accepted = 99.0
    with pytest.raises(IntegrityError):
        broken.check_integrity()


operations = st.tuples(
    st.sampled_from(["choose", "observe", "forget"]),
    st.sampled_from("abc"),
    st.integers(1, 64),
    st.integers(-1, 9),
    st.integers(0, 9),
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(operations, max_size=60),
    st.sampled_from([CPU, gpu, lambda n: float(n**2)]),
    st.floats(0, 1),
    st.floats(0.05, 0.99),
    st.floats(0, 4),
)
def test_any_order_of_calls(
    calls: list[tuple[str, str, int, int, int]], cost: Cost, prior: float, decay: float, draft_cost: float
) -> None:
    length = AdaptiveDraftLength(cost, prior=prior, decay=decay, draft_cost=draft_cost)
    for kind, name, batch, limit, accepted in calls:
        if kind == "choose":
            assert 0 <= length.choose(name, batch, limit) <= max(0, min(8, limit))
        elif kind == "observe":
            length.observe(name, max(0, limit), min(accepted, max(0, limit)))
        else:
            length.forget(name)
        assert 0.0 <= length.alpha(name) <= 1.0
        length.check_integrity()
