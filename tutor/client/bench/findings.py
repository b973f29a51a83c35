"""What to know before believing a result: the client was slow, the server cached, the run was short."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tutor.client.bench.result import Result, late_p99

BUSY_CLIENT = 0.7  # of one core; a queue in front of the client's own loop grows fast above this
LATE_SHARE = 0.05  # of the figure that it distorts: above this the client's delays show
LATE_SECONDS = 0.002
COALESCED = 0.1
TAIL_SAMPLES = 10  # values beyond a percentile that make it worth reading
SHORT_RUNS = 10  # a run should last so many times its median request
CACHE_SLACK = 0.05


class Finding(msgspec.Struct, frozen=True):
    """`about`: client, connections, cache, short, failures, tokens or interrupted.

    `warns`: the figures may mislead.
    """

    about: str
    warns: bool
    sentence: str


def findings(result: Result) -> tuple[Finding, ...]:
    parts = (_interrupted, _failures, _resent, _client, _sends, _cache, _short, _tokens)
    return tuple(finding for part in parts for finding in part(result))


def client_is_bottleneck(result: Result) -> bool:
    return any(finding.about == "client" and finding.warns for finding in findings(result))


def _interrupted(result: Result) -> Iterator[Finding]:
    if result.run.interrupted:
        sent = len(result.run.records)
        yield Finding(
            "interrupted",
            True,
            f"The run was interrupted: {result.run.planned - sent} of {result.run.planned} requests were "
            f"never sent and {result.num_cut} were cut off. The figures cover the {result.completed} that "
            "finished; slow requests are more likely to be missing.",
        )


def _failures(result: Result) -> Iterator[Finding]:
    if result.failed:
        errors = sorted({record.error for record in result.run.records if record.error})
        yield Finding(
            "failures",
            True,
            f"{result.failed} of {len(result.run.records)} requests failed and are in no latency. "
            f"{errors[0][:120]}" + (f" (and {len(errors) - 1} other reasons)" if len(errors) > 1 else ""),
        )


def _resent(result: Result) -> Iterator[Finding]:
    count = sum(record.resent for record in result.run.records)
    if count:
        yield Finding(
            "connections",
            False,
            f"{count} requests were sent a second time: the server had just closed the kept connection. The "
            "time lost counts.",
        )


def _client(result: Result) -> Iterator[Finding]:
    client = result.run.client
    if client.cpu_share > BUSY_CLIENT:
        yield Finding(
            "client",
            True,
            f"This client used {client.cpu_share:.0%} of one core: it may be the bottleneck, and what it "
            "measured may be itself. Lower the load or run the client on another machine.",
        )
    yield from _late(result)
    if result.coalesced_share > COALESCED:
        yield Finding(
            "client",
            True,
            f"{result.coalesced_share:.0%} of the chunks came together with the one before: the client, the "
            "network or the server gathers them, so gaps between tokens (ITL) are not what the server made.",
        )


def _late(result: Result) -> Iterator[Finding]:
    """A wait of some milliseconds for a core is common, and harmless while it is rare and small.

    Like is compared with like: what happens to every twentieth reading shows in the median gap, what happens
    to every hundredth only in the tail.
    """
    client = result.run.client
    spread = result.itl or result.ttft
    if spread is None or not spread.percentiles:
        return
    typical = spread.percentiles[min(spread.percentiles, key=lambda q: abs(q - 50))].value
    last = max(spread.percentiles)
    if client.lag_p95 > max(LATE_SECONDS, LATE_SHARE * typical):
        yield Finding(
            "client",
            True,
            f"This client's event loop was late by {client.lag_p95 * 1e3:.1f} ms or more one time in 20 "
            f"(at most {client.lag_max * 1e3:.1f} ms). "
            "That delay is in every figure; figures near it say little.",
        )
    elif client.lag_p99 > max(LATE_SECONDS, LATE_SHARE * spread.percentiles[last].value):
        yield Finding(
            "client",
            False,
            f"This client's event loop was late by {client.lag_p99 * 1e3:.1f} ms or more one time in 100: "
            f"the tail (P{last:g}) may be the client's own.",
        )


def _sends(result: Result) -> Iterator[Finding]:
    if result.setup.load.arrivals == "closed" or result.ttft is None:
        return
    late = late_p99(result)
    median = (
        result.ttft.percentiles[50.0].value if 50.0 in result.ttft.percentiles else result.ttft.mean.value
    )
    if late > max(LATE_SECONDS, LATE_SHARE * median):
        capped = result.setup.load.concurrency is not None
        reason = "the limit on requests in flight held them back" if capped else "the client was too slow"
        yield Finding(
            "client",
            not capped,
            f"Requests left up to {late * 1e3:.0f} ms after they were due (P99): {reason}. "
            "The rows 'from due time' count that wait; the others do not.",
        )


def _cache(result: Result) -> Iterator[Finding]:
    shared, share, probe = result.setup.load.shared, result.cache.share, result.setup.probe
    if share is not None and share > shared + CACHE_SLACK:
        yield Finding(
            "cache",
            True,
            f"The server took {share:.0%} of the prompt tokens from its cache, {shared:.0%} were shared by "
            "design: earlier runs or a long template are cached, so TTFT is better than for new prompts.",
        )
    elif share is not None and share > 0:
        yield Finding("cache", False, f"The server took {share:.0%} of the prompt tokens from its cache.")
    elif share is None and probe is not None and probe.caches:
        yield Finding(
            "cache",
            shared == 0,
            f"The server does not report cached tokens, but a repeated prompt began "
            f"{probe.first_ttft / probe.second_ttft:.1f} times sooner ({probe.first_ttft * 1e3:.0f} and "
            f"{probe.second_ttft * 1e3:.0f} ms): it caches prompts. Use another --seed for each run.",
        )


def _short(result: Result) -> Iterator[Finding]:
    counts = {q: result.completed * (100 - q) / 100 for q in result.setup.percentiles}
    thin = [q for q, beyond in counts.items() if beyond < TAIL_SAMPLES and q > 50]
    if thin and result.completed:
        q = min(thin)
        need = round(TAIL_SAMPLES / (1 - q / 100))
        yield Finding(
            "short",
            True,
            f"{result.completed} requests leave {counts[q]:.1f} beyond P{q:g}; "
            f"{TAIL_SAMPLES} need {need:,} requests. Read the intervals, not the figures.",
        )
    median = result.e2e.percentiles.get(50.0) if result.e2e else None
    if median is not None and result.run.duration < SHORT_RUNS * median.value:
        yield Finding(
            "short",
            True,
            f"The run lasted {result.run.duration:.1f} s, {result.run.duration / median.value:.1f} times its "
            "median request: filling and draining the server weigh more than its steady state.",
        )


def _tokens(result: Result) -> Iterator[Finding]:
    if result.completed and not any(record.counted_by_server for record in result.good):
        yield Finding(
            "tokens",
            True,
            "The server reports no usage: chunks are counted as output tokens; prompt tokens are unknown.",
        )
    elif result.tokens_per_chunk > 1.1:
        yield Finding(
            "tokens",
            True,
            f"Each chunk carries {result.tokens_per_chunk:.1f} tokens on average: ITL is the gap between "
            "chunks, not between tokens. TPOT is not affected.",
        )
    if not result.setup.target.ignore_eos and result.setup.load.ignore_eos:
        yield Finding(
            "tokens",
            False,
            "The server does not know ignore_eos: answers end where the model ends them.",
        )
