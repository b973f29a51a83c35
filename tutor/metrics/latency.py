"""A request's latencies, from its events.

TTFT is arrival to first token, queueing included. TPOT is (E2E - TTFT) / (n - 1) per request. ITL is each
gap between tokens. E2E is arrival to the end. [DistServe, arXiv 2401.09670; vLLM's benchmark]
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from tutor.trace import events as ev


class RequestLatency(msgspec.Struct, frozen=True):
    """Seconds; None where the request never got that far. `itl` has num_output_tokens - 1 gaps."""

    request_id: str
    arrived_at: float
    ttft: float | None
    tpot: float | None
    e2e: float | None
    itl: tuple[float, ...]
    num_output_tokens: int
    finish_reason: str


class _Clock:
    def __init__(self, arrived_at: float) -> None:
        self.arrived_at = arrived_at
        self.token_times: list[float] = []
        self.finished_at: float | None = None
        self.finish_reason = ""

    def latency(self, request_id: str) -> RequestLatency:
        times = self.token_times
        ttft = times[0] - self.arrived_at if times else None
        tpot = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None
        e2e = times[-1] - self.arrived_at if times and self.finished_at is not None else None
        itl = tuple(b - a for a, b in pairwise(times))
        return RequestLatency(
            request_id, self.arrived_at, ttft, tpot, e2e, itl, len(times), self.finish_reason
        )


def request_latencies(records: Iterable[ev.TraceRecord]) -> tuple[RequestLatency, ...]:
    """Latencies of every request of a trace, in order of arrival. Tokens of one event share a time."""
    clocks: dict[str, _Clock] = {}
    for record in records:
        match record.event:
            case ev.RequestArrived(request_id):
                clocks[request_id] = _Clock(record.ts)
            case ev.TokensEmitted(request_id, token_ids):
                clocks[request_id].token_times += [record.ts] * len(token_ids)
            case ev.RequestFinished(request_id, finish_reason):
                clocks[request_id].finished_at = record.ts
                clocks[request_id].finish_reason = finish_reason
            case _:
                pass
    return tuple(clock.latency(request_id) for request_id, clock in clocks.items())
