# fails: several at once
# says: count tokens, not chunks
"""Run the two phases of a request, and take its times apart."""

from itertools import pairwise
from typing import NamedTuple


class Phases(NamedTuple):
    """The times of one request. Seconds, or tokens per second; None where there is no such time."""

    queue: float
    ttft: float | None
    prefill_tps: float | None
    tpot: float | None
    itl: list[float]
    decode_tps: float | None
    e2e: float | None


def run(engine, prompt, n_new, n_batch):
    """Prefill in chunks, then decode one token a pass; see starter.py for the rules."""
    trace, tokens = [], []
    for start in range(0, len(prompt), n_batch):
        part = prompt[start : start + n_batch]
        positions = list(range(start, start + len(part)))
        want = [position == len(prompt) - 1 for position in positions]
        answer = engine.decode(part, positions, want)
        trace.append(("prefill", len(part), sum(want)))
    tokens.append(answer[-1])
    while len(tokens) < n_new:
        position = len(prompt) + len(tokens) - 1
        tokens.append(engine.decode([tokens[-1]], [position], [True])[0])
        trace.append(("decode", 1, 1))
    return tokens, trace


def split(arrived, started, chunks, num_prompt, num_cached):
    """Take the times of one request apart; see starter.py for the rules."""
    queue = started - arrived
    stamps = [seconds for seconds, count in chunks]
    if not stamps:
        return Phases(queue, None, None, None, [], None, None)
    first, last, gaps = stamps[0], stamps[-1], len(stamps) - 1
    return Phases(
        queue=queue,
        ttft=first - arrived,
        prefill_tps=(num_prompt - num_cached) / (first - started),
        tpot=(last - first) / gaps if gaps else None,
        itl=[b - a for a, b in pairwise(stamps)],
        decode_tps=gaps / (last - first) if gaps else None,
        e2e=last - arrived,
    )
