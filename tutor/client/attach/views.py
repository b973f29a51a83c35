"""Frozen pictures of a server, all that a widget sees. Times are seconds, shares 0 to 1, None is unknown."""

from __future__ import annotations

import msgspec


class PercentileView(msgspec.Struct, frozen=True):
    """`above`: the percentile lies above the histogram's last bound, `value`."""

    q: float
    value: float
    above: bool


class LatencyView(msgspec.Struct, frozen=True):
    """One latency. `percentiles` are estimated from buckets; empty when only a mean is known.

    `window`: the seconds that the figures cover; None is since the server's start.
    """

    name: str
    meaning: str
    count: int
    mean: float | None
    percentiles: tuple[PercentileView, ...]
    window: float | None


class SlotView(msgspec.Struct, frozen=True):
    """One slot of llama-server. Counts are tokens."""

    slot: int
    busy: bool
    num_context: int
    num_prompt: int
    num_cached: int
    num_decoded: int
    num_left: int

    @property
    def num_used(self) -> int:
        return self.num_prompt + self.num_decoded


class EngineView(msgspec.Struct, frozen=True):
    """One of several engines behind a server (data parallel ranks, or models)."""

    name: str
    running: float | None
    waiting: float | None
    kv_usage: float | None


class PointView(msgspec.Struct, frozen=True):
    """One poll, for the curves."""

    at: float
    running: float | None
    waiting: float | None
    kv_usage: float | None
    output_rate: float | None


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A server at one poll.

    `kind`: vllm, sglang, llama-server or tutor; also ollama, page (a web site) or unknown without metrics.
    `status`: "ok", "starting" (no figures yet), "silent" (it answered before and does not now; figures are of
    the last answer), "no metrics".
    `age`: seconds since the figures were read. Rates are per second over the window.
    `window`: the seconds that the rates and `hit_rate` cover; None after a single look.
    `capacity`: how many requests may run at once.
    `kv_note` says where `kv_usage` comes from when it is no figure of the server's own.
    `engines` is empty where there is only one; counts are sums over all and `kv_usage` is the fullest one's.
    `missing`: what this server does not report.
    """

    url: str
    kind: str = "unknown"
    name: str = ""
    version: str = ""
    model: str = ""
    facts: tuple[str, ...] = ()
    status: str = "starting"
    problem: str = ""
    age: float = 0.0
    num_polls: int = 0
    num_restarts: int = 0
    running: float | None = None
    waiting: float | None = None
    window: float | None = None
    capacity: int | None = None
    kv_usage: float | None = None
    kv_note: str = ""
    hit_rate: float | None = None
    hit_rate_before: float | None = None
    preemptions: float | None = None
    preemption_rate: float | None = None
    input_rate: float | None = None
    output_rate: float | None = None
    request_rate: float | None = None
    acceptance: float | None = None
    latencies: tuple[LatencyView, ...] = ()
    slots: tuple[SlotView, ...] = ()
    engines: tuple[EngineView, ...] = ()
    points: tuple[PointView, ...] = ()
    missing: tuple[str, ...] = ()
    unreadable: int = 0
