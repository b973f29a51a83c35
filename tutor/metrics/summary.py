"""Percentiles and rates over a set of requests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tutor.metrics.latency import RequestLatency


def percentile(values: Sequence[float], q: float) -> float:
    """Nearest-rank percentile: the smallest value with at least q percent of the values at or below it.

    q in (0, 100]. ValueError for no values or another q.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    if not 0 < q <= 100:
        raise ValueError(f"a percentile lies in (0, 100], not {q}")
    return sorted(values)[math.ceil(q / 100 * len(values)) - 1]


class Spread(msgspec.Struct, frozen=True):
    """Seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


class Summary(msgspec.Struct, frozen=True):
    """`throughput` is output tokens a second over the wall span; None where no request has the figure."""

    num_requests: int
    num_finished: int
    span: float
    throughput: float
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(sum(values) / len(values), *(percentile(values, q) for q in (50, 95, 99)))


def summarise(latencies: Sequence[RequestLatency]) -> Summary:
    """The span runs from the first arrival to the last token."""
    starts = [latency.arrived_at for latency in latencies]
    ends = [latency.arrived_at + latency.e2e for latency in latencies if latency.e2e is not None]
    span = max(ends) - min(starts) if ends else 0.0
    tokens = sum(latency.num_output_tokens for latency in latencies)
    return Summary(
        num_requests=len(latencies),
        num_finished=sum(latency.finish_reason in ("stop", "length") for latency in latencies),
        span=span,
        throughput=tokens / span if span else 0.0,
        ttft=spread([x.ttft for x in latencies if x.ttft is not None]),
        tpot=spread([x.tpot for x in latencies if x.tpot is not None]),
        itl=spread([gap for x in latencies for gap in x.itl]),
        e2e=spread([x.e2e for x in latencies if x.e2e is not None]),
    )
