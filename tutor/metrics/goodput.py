"""Goodput: requests a second that meet every latency target [DistServe, arXiv 2401.09670]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tutor.metrics.latency import RequestLatency


class Targets(msgspec.Struct, frozen=True):
    """Upper limits in seconds (service-level objectives); infinite where there is none."""

    ttft: float = math.inf
    tpot: float = math.inf
    e2e: float = math.inf


def meets(latency: RequestLatency, targets: Targets) -> bool:
    """Whether a request finished and met all targets; one token has no TPOT to miss."""
    if latency.finish_reason not in ("stop", "length") or latency.ttft is None:
        return False
    limited = ((latency.tpot, targets.tpot), (latency.e2e, targets.e2e))
    return latency.ttft <= targets.ttft and all(x is None or x <= limit for x, limit in limited)


def goodput(latencies: Sequence[RequestLatency], targets: Targets, span: float) -> float:
    """Requests a second over `span` seconds that met the targets; failed requests count against it."""
    if span <= 0:
        raise ValueError("goodput needs a span above 0 seconds")
    return sum(meets(latency, targets) for latency in latencies) / span
