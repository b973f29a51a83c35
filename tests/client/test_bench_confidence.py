"""Whether 95 % intervals hold the truth 95 times of 100, on samples of known distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tutor.client.bench.confidence import Interval, distribution, ranks, requests_for_bound, student
from tutor.metrics.summary import percentile

Draw = Callable[[np.random.Generator], Sequence[Sequence[float]]]
RUNS = 300


def coverage(draw: Draw, q: float, truth: float) -> tuple[float, float]:
    """Shares of samples whose interval holds the truth, and whose interval has an upper bound."""
    rng = np.random.default_rng(7)
    hits = bounded = 0
    for _ in range(RUNS):
        found = distribution(draw(rng), (q,))
        assert found is not None
        x = found.percentiles[q]
        hits += (x.low is None or x.low <= truth) and (x.high is None or truth <= x.high)
        bounded += x.high is not None
    return hits / RUNS, bounded / RUNS


@pytest.mark.parametrize(
    ("n", "q", "bounded"),
    [
        (10, 5, 1),
        (10, 50, 1),
        (10, 95, 0),
        (64, 50, 1),
        (64, 95, 1),
        (64, 99, 0),
        (300, 99, 1),
        (1000, 99, 1),
    ],
)
def test_independent_values(n: int, q: float, bounded: float) -> None:
    """Exponential, so the tail is long. Order statistics hold at least what they claim, and little more
    when n is large. Of 300 samples, a share of 0.95 is seen below 0.92 once in a hundred times."""
    share, with_bound = coverage(
        lambda rng: [[x] for x in rng.exponential(size=n)], q, -math.log(1 - q / 100)
    )
    assert share >= 0.92 and with_bound == bounded
    if n >= 300:
        assert share <= 0.995


@pytest.mark.parametrize(
    ("answers", "q"), [(5, 99), (10, 95), (40, 50), (40, 95), (40, 99), (200, 50), (200, 99)]
)
@pytest.mark.parametrize("kind", ["alike", "stalls", "unequal"])
def test_gaps_of_answers(kind: str, answers: int, q: float) -> None:
    """Gaps that are alike within an answer, rare stalls, and answers of unequal lengths."""

    def answer(rng: np.random.Generator) -> list[float]:
        if kind == "stalls":
            late = rng.random(20) < 0.03
            return [float(x) for x in rng.exponential(size=20) + 5 * late]
        size = 20 if kind == "alike" else int(rng.integers(2, 40))
        return [float(x) for x in rng.normal() + 0.5 * rng.normal(size=size)]

    share, _ = coverage(lambda rng: [answer(rng) for _ in range(answers)], q, TRUTH[kind](q))
    assert share >= 0.91


def _of_normal(q: float) -> float:
    """Of the sum of a normal of deviation 1 and one of deviation 1/2."""
    from statistics import NormalDist

    return NormalDist(0, math.sqrt(1.25)).inv_cdf(q / 100)


def _of_stalls(q: float) -> float:
    """Exponential, 3 of 100 later by 5: by bisection of the distribution function."""
    low, high = 0.0, 50.0
    for _ in range(60):
        x = (low + high) / 2
        below = 0.97 * (1 - math.exp(-x)) + 0.03 * (1 - math.exp(-max(0.0, x - 5)))
        low, high = (x, high) if below < q / 100 else (low, x)
    return low


TRUTH: dict[str, Callable[[float], float]] = {
    "alike": _of_normal, "unequal": _of_normal, "stalls": _of_stalls,
}  # fmt: skip


def test_means() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(RUNS):
        found = distribution([[float(b + e) for e in rng.normal(size=5)] for b in rng.normal(size=12)], ())
        assert found is not None and found.mean.low is not None and found.mean.high is not None
        hits += found.mean.low <= 0 <= found.mean.high
    assert 0.91 <= hits / RUNS <= 0.985


def test_ranks_by_hand() -> None:
    """P(B = n): 0.5 ** 6 = 1.6 % is below half of 5 %; 0.95 ** 64 = 3.8 % only below all of it."""
    assert ranks(6, 50) == (1, 6) and ranks(5, 50) == (None, 5) and ranks(2, 50) == (None, None)
    assert ranks(58, 95)[1] is None and ranks(59, 95)[1] == 59 and ranks(298, 99)[1] is None
    assert ranks(299, 1)[0] == 1 and ranks(299, 99) == (289, 299) and ranks(299, 1) == (1, 11)
    assert ranks(7, 100) == (7, None)
    assert [requests_for_bound(q) for q in (50, 95, 99)] == [5, 59, 299]


@pytest.mark.parametrize(
    ("freedom", "table"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_students_t(freedom: int, table: float) -> None:
    assert student(freedom) == pytest.approx(table, rel=0.002)


def test_percentiles_are_those_of_tutor_metrics() -> None:
    values = [float((i * 37) % 101) for i in range(101)]
    found = distribution([[v] for v in values], (50.0, 95.0, 99.0))
    assert found is not None and found.count == 101
    for q, interval in found.percentiles.items():
        assert interval.value == percentile(values, q)
        assert interval.low is not None and interval.low <= interval.value
        assert interval.high is None or interval.value <= interval.high
    assert found.mean.value == pytest.approx(50.0)
    assert found.std == pytest.approx(np.std(values))


def test_gaps_of_one_answer_stay_together() -> None:
    """Ten answers, each with gaps all alike: the interval is that of ten values, not of a thousand."""
    groups = [[float(i)] * 100 for i in range(10)]
    together = distribution(groups, (50.0,))
    alone = distribution([[v] for group in groups for v in group], (50.0,))
    assert together is not None and alone is not None

    def length(x: Interval) -> float:
        assert x.low is not None and x.high is not None
        return x.high - x.low

    assert length(together.percentiles[50.0]) >= 3 > length(alone.percentiles[50.0])


def test_distributions_at_the_edge() -> None:
    assert distribution([], (50.0,)) is None
    assert distribution([[], []], (50.0,)) is None
    found = distribution([[1.0], []], (50.0, 99.0))
    assert found is not None
    assert (found.percentiles[99.0].low, found.percentiles[99.0].high) == (1.0, None)
    one = distribution([[1.0, 2.0, 3.0]], (50.0,))
    assert one is not None and one.percentiles[50.0] == Interval(2.0, None, None)
    assert one.mean == Interval(2.0, None, None)
