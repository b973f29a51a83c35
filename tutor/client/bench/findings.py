"""What to know before believing a result: the client was slow, the server cached, the run was short."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator

import msgspec

from tutor.client.bench.confidence import requests_for_bound
from tutor.client.bench.result import Result, late_p99
from tutor.client.bench.workload import wished_lengths

BUSY_CLIENT = 0.7  # of one core; a queue in front of the client's own loop grows fast above this
LATE_SHARE = 0.05  # of the figure that it distorts: above this the client's delays show
LATE_SECONDS = 0.002
COALESCED = 0.1
TAIL_SAMPLES = 10  # values beyond a percentile that make it worth reading
SHORT_RUNS = 10  # a run should last so many times its median request
CACHE_SLACK = 0.05
LENGTH_SLACK, LENGTH_TOKENS = 0.1, 4  # share and tokens by which a mean length may miss what was asked for
REASONS, LONGEST_REASON = 3, 220
_NUMBER = re.compile(r"\d+")


class Finding(msgspec.Struct, frozen=True):
    """`about`: client, connections, cache, short, failures, tokens, lengths, model or interrupted.

    `warns`: the figures may mislead.
    """

    about: str
    warns: bool
    sentence: str


def findings(result: Result) -> tuple[Finding, ...]:
    parts = (_interrupted, _failures, _model, _resent, _client, _sends, _cache, _short, _tokens)
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
    """The commonest reasons first. Reasons that differ in their numbers only are one."""
    if not result.failed:
        return
    errors = [record.error for record in result.run.records if record.error]
    kinds = Counter(_NUMBER.sub("#", error) for error in errors)
    example = {_NUMBER.sub("#", error): error for error in reversed(errors)}
    told = [f"{count} x {_short_of(example[kind])}" for kind, count in kinds.most_common(REASONS)]
    if len(kinds) > REASONS:
        told.append(f"and {len(kinds) - REASONS} other reasons.")
    yield Finding(
        "failures",
        True,
        f"{result.failed} of {_count(len(result.run.records), 'request')} failed and are in no latency. "
        + " ".join(told),
    )


def _short_of(error: str) -> str:
    return textwrap.shorten(error, LONGEST_REASON, placeholder=" ...").rstrip(".") + "."


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _model(result: Result) -> Iterator[Finding]:
    """llama-server, for one, answers whatever model is asked for."""
    listed, asked = result.setup.listed_models, result.setup.target.model
    if listed and asked not in listed and result.completed:
        names = ", ".join(listed[:REASONS]) + (", ..." if len(listed) > REASONS else "")
        yield Finding("model", True, f"The server lists {names} and not {asked}; what answered is not known.")


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
    if spread is None:
        return
    typical = spread.percentiles[50.0].value
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
            f"the tail (P{last:.12g}) may be the client's own.",
        )


def _sends(result: Result) -> Iterator[Finding]:
    if result.setup.load.arrivals == "closed" or result.ttft is None:
        return
    late = late_p99(result)
    median = result.ttft.percentiles[50.0].value
    if late > max(LATE_SECONDS, LATE_SHARE * median):
        capped = result.setup.load.concurrency is not None
        reason = "the limit on requests in flight held them back" if capped else "the client was too slow"
        yield Finding(
            "client",
            not capped,
            f"Requests left up to {late * 1e3:.0f} ms after they were due (P99): {reason}. "
            "The rows 'due' count that wait; the others do not.",
        )


def _cache(result: Result) -> Iterator[Finding]:
    share, probe = result.cache.share, result.setup.probe
    if share is not None and share > 0:
        yield _cached(result, share)
    elif share is None and probe is not None and probe.caches:
        yield Finding(
            "cache",
            result.setup.load.shared == 0,
            f"The server does not report cached tokens, but a repeated prompt began "
            f"{probe.first_ttft / probe.second_ttft:.1f} times sooner ({probe.first_ttft * 1e3:.0f} and "
            f"{probe.second_ttft * 1e3:.0f} ms): it caches prompts. Use another --seed for each run.",
        )


def _cached(result: Result, share: float) -> Finding:
    """All prompts begin with the chat template and with what --shared asks for. More means old prompts."""
    template = min(1.0, (result.setup.template_tokens or 0.0) * result.completed / result.cache.prompt)
    meant = template + result.setup.load.shared * (1 - template)
    took = f"The server took {share:.0%} of the prompt tokens from its cache"
    alike = f"{meant:.0%} are alike in all prompts (chat template and --shared)"
    if share > meant + CACHE_SLACK:
        return Finding(
            "cache",
            True,
            f"{took}; {alike}. The rest was sent before, in an earlier run with this --seed: TTFT is better "
            "than for new prompts.",
        )
    return Finding("cache", False, f"{took}; {alike}.")


def _short(result: Result) -> Iterator[Finding]:
    high = [q for q in result.setup.percentiles if 50 < q < 100]
    thin = [q for q in high if result.completed * (100 - q) / 100 < TAIL_SAMPLES]
    if thin and result.completed:
        beyond = result.completed * (100 - thin[0]) / 100
        needs = f"{round(TAIL_SAMPLES / (1 - thin[0] / 100)):,}"
        open_ended = [q for q in thin if result.completed < requests_for_bound(q)]
        bounds = [f"{requests_for_bound(q):,} for P{q:.12g}" for q in open_ended]
        leave = "leaves" if result.completed == 1 else "leave"
        yield Finding(
            "short",
            True,
            f"{_count(result.completed, 'request')} {leave} {beyond:.1f} beyond P{thin[0]:.12g}; "
            f"{TAIL_SAMPLES} need {needs} requests. Read the intervals, not the figures."
            + (f" An upper bound takes {', '.join(bounds)}." if bounds else ""),
        )
    median = result.e2e.percentiles[50.0].value if result.e2e else None
    if median and result.run.duration < SHORT_RUNS * median:
        yield Finding(
            "short",
            True,
            f"The run lasted {result.run.duration:.1f} s, {result.run.duration / median:.1f} times its "
            "median request: filling and draining the server weigh more than its steady state.",
        )
    limit = result.setup.load.duration
    if limit is not None and not result.run.interrupted and result.run.duration < limit:
        yield Finding(
            "short",
            False,
            f"All {_count(result.run.planned, 'request')} (-n) were over after {result.run.duration:.1f} s "
            f"of the {limit:g} s (--duration).",
        )


def _tokens(result: Result) -> Iterator[Finding]:
    silent = sum(not record.token_times for record in result.good)
    if silent:
        yield Finding(
            "tokens",
            True,
            f"{silent} of {_count(result.completed, 'answer')} had no text: they have no TTFT and meet no "
            "target.",
        )
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
    yield from _lengths(result)


def _lengths(result: Result) -> Iterator[Finding]:
    """The lengths that came out are not those that were asked for."""
    counted = [record for record in result.good if record.counted_by_server]
    if not counted:
        return
    inputs, outputs = wished_lengths(result.setup.load)
    got_in, wished_in = (
        statistics.mean(lengths)
        for lengths in ([x.num_input_tokens or 0 for x in counted], [inputs[x.index] for x in counted])
    )
    if got_in and abs(got_in - wished_in) > max(LENGTH_SLACK * wished_in, LENGTH_TOKENS):
        template = min(result.setup.template_tokens or 0.0, got_in - 1)
        reason = f": the chat template alone has about {template:.0f}" if template > wished_in / 2 else ""
        yield Finding(
            "lengths",
            False,
            f"Prompts have {got_in:.0f} tokens on average, {wished_in:.0f} were asked for{reason}.",
        )
    got_out = statistics.mean(x.num_output_tokens for x in counted)
    wished_out = statistics.mean(outputs[x.index] for x in counted)
    if result.setup.target.ignore_eos and got_out < (1 - LENGTH_SLACK) * wished_out:
        yield Finding(
            "lengths",
            True,
            f"Answers have {got_out:.1f} tokens on average, {wished_out:.1f} were asked for: the server "
            "ended them early, although it took ignore_eos.",
        )
