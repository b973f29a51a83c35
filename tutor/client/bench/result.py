"""A run in numbers: latencies, rates, goodput, what the client and the cache did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tutor.client.bench.confidence import Distribution, distribution
from tutor.client.bench.driver import Run
from tutor.client.bench.prepare import CacheProbe
from tutor.client.bench.record import RequestRecord, latency
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load
from tutor.metrics.goodput import Targets, goodput
from tutor.metrics.latency import RequestLatency
from tutor.metrics.summary import percentile


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, where, and how the figures were asked for.

    `template_tokens`: what the chat template adds to each prompt, about; None when the server counts no
    prompt tokens.
    """

    url: str
    target: Target
    load: Load
    percentiles: tuple[float, ...] = (50.0, 95.0, 99.0)
    targets: Targets | None = None
    template_tokens: float | None = None
    listed_models: tuple[str, ...] = ()
    probe: CacheProbe | None = None


class Rates(msgspec.Struct, frozen=True):
    """Per second of the run, of requests that went well; concurrency is the average number in flight."""

    requests: float
    output_tokens: float
    all_tokens: float
    goodput: float | None
    concurrency: float
    most_output_tokens: float


class Cache(msgspec.Struct, frozen=True):
    """Prompt tokens that the server took from its cache, of those it was asked. None: it does not say."""

    cached: int | None
    prompt: int

    @property
    def share(self) -> float | None:
        return self.cached / self.prompt if self.cached is not None and self.prompt else None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a run, times in seconds.

    `tpot` is (E2E - TTFT) / (n - 1), `e2e_per_token` is E2E / n: other clients call that one TPOT.
    `planned_ttft` and `planned_e2e` begin when a request was due instead of when it left.
    `lateness` holds how late each request left, `queue_time` is that of the good ones. `num_cut` counts those
    cut off by an interruption. Each distribution has the median, asked for or not.
    """

    setup: Setup
    run: Run
    completed: int
    failed: int
    num_cut: int
    num_input_tokens: int
    num_output_tokens: int
    ttft: Distribution | None
    tpot: Distribution | None
    e2e_per_token: Distribution | None
    itl: Distribution | None
    e2e: Distribution | None
    planned_ttft: Distribution | None
    planned_e2e: Distribution | None
    rates: Rates
    cache: Cache
    queue_time: Distribution | None
    lateness: tuple[float, ...]
    coalesced_share: float
    tokens_per_chunk: float

    @property
    def good(self) -> tuple[RequestRecord, ...]:
        return tuple(record for record in self.run.records if record.ok)


def make_result(setup: Setup, run: Run) -> Result:
    good = [record for record in run.records if record.ok]
    measured = [latency(record) for record in good]
    planned = [latency(record, since_plan=True) for record in good]
    percentiles = sorted({50.0, *setup.percentiles})

    def of(
        pick: Callable[[RequestLatency], Sequence[float]], of_whom: Sequence[RequestLatency]
    ) -> Distribution | None:
        return distribution([pick(x) for x in of_whom], percentiles)

    chunks = sum(len(record.token_times) for record in good)
    return Result(
        setup=setup,
        run=run,
        completed=len(good),
        failed=sum(bool(record.error) for record in run.records),
        num_cut=sum(record.cut for record in run.records),
        num_input_tokens=sum(record.num_input_tokens or 0 for record in good),
        num_output_tokens=sum(record.num_output_tokens for record in good),
        ttft=of(lambda x: _known(x.ttft), measured),
        tpot=of(lambda x: _known(x.tpot), measured),
        e2e_per_token=of(_per_token, measured),
        itl=of(lambda x: x.itl, measured),
        e2e=of(lambda x: _known(x.e2e), measured),
        planned_ttft=of(lambda x: _known(x.ttft), planned),
        planned_e2e=of(lambda x: _known(x.e2e), planned),
        rates=_rates(setup, run, good, measured),
        cache=_cache(good),
        queue_time=distribution([(record.lateness,) for record in good], percentiles),
        lateness=tuple(record.lateness for record in run.records),
        coalesced_share=sum(record.coalesced for record in good) / max(1, chunks - len(good)),
        tokens_per_chunk=sum(x.num_output_tokens for x in good if x.token_times) / max(1, chunks),
    )


def _per_token(x: RequestLatency) -> tuple[float, ...]:
    return () if x.e2e is None or not x.num_output_tokens else (x.e2e / x.num_output_tokens,)


def _known(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)


def _rates(
    setup: Setup, run: Run, good: Sequence[RequestRecord], measured: Sequence[RequestLatency]
) -> Rates:
    span = run.duration
    if span <= 0:
        return Rates(0.0, 0.0, 0.0, None, 0.0, 0.0)
    tokens_out = sum(record.num_output_tokens for record in good)
    tokens_in = sum(record.num_input_tokens or 0 for record in good)
    return Rates(
        requests=len(good) / span,
        output_tokens=tokens_out / span,
        all_tokens=(tokens_in + tokens_out) / span,
        goodput=goodput(measured, setup.targets, span) if setup.targets is not None else None,
        concurrency=sum(x.e2e or 0.0 for x in measured) / span,
        most_output_tokens=max(tokens_by_second(run), default=0.0),
    )


def _cache(good: Sequence[RequestRecord]) -> Cache:
    said = [record.num_cached_tokens for record in good if record.num_cached_tokens is not None]
    return Cache(sum(said) if said else None, sum(record.num_input_tokens or 0 for record in good))


def tokens_by_second(run: Run) -> list[float]:
    """Output tokens in each whole second of the run; a chunk counts the tokens that it carries on average."""
    seconds = [0.0] * (int(run.duration) + 1)
    for record in run.records:
        if record.token_times:
            weight = record.num_output_tokens / len(record.token_times)
            for at in record.token_times:
                if 0 <= (second := int(at - run.started_at)) < len(seconds):
                    seconds[second] += weight
    return seconds


def in_flight_by_second(run: Run) -> list[float]:
    """Requests in flight, on average over each whole second of the run; the last second is cut short."""
    inside = [0.0] * (int(run.duration) + 1)
    for record in run.records:
        begin = max(0.0, record.sent_at - run.started_at)
        end = min(run.duration, _ended(record) - run.started_at)
        for second in range(int(begin), min(len(inside) - 1, int(end)) + 1):
            inside[second] += max(0.0, min(second + 1, end) - max(second, begin))
    lengths = [min(1.0, run.duration - second) for second in range(len(inside))]
    return [x / length if length > 0 else 0.0 for x, length in zip(inside, lengths, strict=True)]


def seen_by_second(run: Run) -> list[int]:
    """Requests that were in flight at some moment of each whole second: more than were there at once."""
    counts = [0] * (int(run.duration) + 1)
    for record in run.records:
        first, last = (int(at - run.started_at) for at in (record.sent_at, _ended(record)))
        for second in range(max(0, first), min(len(counts) - 1, last) + 1):
            counts[second] += 1
    return counts


def _ended(record: RequestRecord) -> float:
    """When a request ended, or was last heard of."""
    return record.finished_at or (record.token_times[-1] if record.token_times else record.sent_at)


def late_p99(result: Result) -> float:
    """How late the latest requests left, in seconds (99th percentile)."""
    return percentile(result.lateness, 99) if result.lateness else 0.0
