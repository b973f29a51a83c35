"""What the client saw of one request, and its latencies by the definitions of `tutor.metrics`."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from tutor.metrics.latency import RequestLatency


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds of the client's monotonic clock.

    `planned_at` is when the request was due, `sent_at` when it left, `token_times` when each chunk with text
    arrived, `finished_at` when the chunk with the finish reason came. `num_output_tokens` is the server's
    count; when the server gives none it is the number of chunks (`counted_by_server` is False).
    `num_cached_tokens` is None when the server does not say. `coalesced` counts chunks that came together
    with the one before. `error` is empty for a request that went well; `cut` marks one that was still
    running when the run was interrupted, `resent` one whose kept connection the server had just closed.
    """

    index: int
    planned_at: float
    sent_at: float
    token_times: tuple[float, ...] = ()
    finished_at: float | None = None
    num_input_tokens: int | None = None
    num_output_tokens: int = 0
    counted_by_server: bool = False
    num_cached_tokens: int | None = None
    finish_reason: str = ""
    coalesced: int = 0
    text: str = ""
    error: str = ""
    status: int | None = None
    cut: bool = False
    resent: bool = False

    @property
    def ok(self) -> bool:
        return not self.error and not self.cut and self.finished_at is not None

    @property
    def lateness(self) -> float:
        """Seconds between when it was due and when it left."""
        return self.sent_at - self.planned_at


def latency(record: RequestRecord, *, since_plan: bool = False) -> RequestLatency:
    """The request's latencies. With `since_plan` they begin when it was due, not when it left: a client that
    sends late then does not hide the wait [Tene, "coordinated omission"].

    A chunk may carry several tokens; then there are fewer gaps than tokens - 1. An answer without any text
    has an E2E and no TTFT.
    """
    start = record.planned_at if since_plan else record.sent_at
    times = record.token_times
    ttft = times[0] - start if times else None
    e2e = record.finished_at - start if record.finished_at is not None else None
    count = record.num_output_tokens
    tpot = None
    if e2e is not None and ttft is not None and count > 1:
        tpot = (e2e - ttft) / (count - 1)
    return RequestLatency(
        request_id=str(record.index),
        arrived_at=start,
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
        itl=tuple(b - a for a, b in pairwise(times)),
        num_output_tokens=count,
        finish_reason=record.finish_reason if record.ok else "error",
    )
