"""Percentiles from buckets, and what a histogram gained between two looks at it."""

from __future__ import annotations

import math

from tutor.client.attach.scrape import Histogram


def gained(now: Histogram, before: Histogram | None) -> Histogram:
    """Observations since `before`. After a restart (or with other buckets) all of `now` is new."""
    if before is None or before.bounds != now.bounds:
        return now
    counts = tuple(a - b for a, b in zip(now.counts, before.counts, strict=True))
    if any(count < 0 for count in counts):
        return now
    return Histogram(now.bounds, counts, max(0.0, now.total - before.total))


def quantile(histogram: Histogram, q: float) -> float | None:
    """The q-th percentile, estimated: observations are taken to lie evenly within their bucket, the rule of
    PromQL's `histogram_quantile`. None without observations; infinite when it lies above the last bound.

    The error is at most the width of the bucket.
    """
    if histogram.count <= 0:
        return None
    rank = q / 100 * histogram.count
    lower, below = 0.0, 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        if count >= rank and count > below:
            if math.isinf(bound):
                return math.inf
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return math.inf


def last_bound(histogram: Histogram) -> float:
    """The largest finite bound: what an infinite percentile is known to exceed."""
    finite = [bound for bound in histogram.bounds if not math.isinf(bound)]
    return finite[-1] if finite else 0.0
