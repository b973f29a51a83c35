"""Percentiles with their uncertainty: the bootstrap over requests.

Requests, not single values, are drawn again with replacement, so that the gaps of one answer stay together
[Efron and Tibshirani, An Introduction to the Bootstrap, 1993]. Percentiles are nearest-rank, as in
`tutor.metrics.summary`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tutor.metrics.summary import percentile

RESAMPLES = 1000
MANY, FEWER_RESAMPLES = 100_000, 200  # of so many values each draw takes a millisecond
LEVEL = 95.0  # percent


class Interval(msgspec.Struct, frozen=True):
    """A figure and the interval that holds 95 % of its bootstrap values."""

    value: float
    low: float
    high: float


class Distribution(msgspec.Struct, frozen=True):
    """Of one latency. `percentiles` maps 50, 95, 99 and the like to a figure with its interval."""

    count: int
    mean: Interval
    std: float
    percentiles: dict[float, Interval]


def distribution(
    groups: Sequence[Sequence[float]], percentiles: Sequence[float], seed: int = 0
) -> Distribution | None:
    """The values of each request are one group. None when there is no value.

    `std` divides by n, as numpy.std does.
    """
    values = np.array([value for group in groups for value in group])
    if not len(values):
        return None
    owner = np.array([i for i, group in enumerate(groups) for _ in group])
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    rng = np.random.default_rng(seed)
    draws = RESAMPLES if len(values) <= MANY else FEWER_RESAMPLES
    means = np.empty(draws)
    drawn = {q: np.empty(draws) for q in percentiles}
    for r in range(draws):
        weights = np.bincount(rng.integers(0, len(groups), size=len(groups)), minlength=len(groups))[owner]
        total = np.cumsum(weights)
        if total[-1] == 0:  # only requests without a value were drawn
            weights, total = np.ones(len(values)), np.arange(1, len(values) + 1)
        means[r] = values @ weights / total[-1]
        for q in percentiles:
            # nearest rank: the first value with at least q percent of the weight at or below it
            drawn[q][r] = values[np.searchsorted(total, np.ceil(q / 100 * total[-1]))]
    plain = values.tolist()
    return Distribution(
        count=len(plain),
        mean=_interval(float(values.mean()), means),
        std=float(values.std()),
        percentiles={q: _interval(percentile(plain, q), drawn[q]) for q in percentiles},
    )


def _interval(value: float, drawn: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Interval:
    edge = (100 - LEVEL) / 2
    low, high = np.percentile(drawn, [edge, 100 - edge])
    return Interval(value, min(float(low), value), max(float(high), value))
