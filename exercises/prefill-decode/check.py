"""Checks of the two phases: passes on the real model, and time stamps of real runs."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from tutor.grading.kit import Context, Record, Refused, check

TEXT = "A ferry crosses the river every hour. In winter the ice is thick and the ferry waits, so people walk."
FIELDS = ("queue", "ttft", "prefill_tps", "tpot", "itl", "decode_tps", "e2e")
TOLERANCE = 1e-6
Trace = list[list[Any]]
Times = dict[str, Any]


class Engine:
    """One slot of the real model in exact mode. It keeps what each pass did."""

    def __init__(self, session: Any, n_batch: int, limit: int) -> None:
        self._session, self._n_batch, self._limit = session, n_batch, limit
        self.passes: list[tuple[int, int]] = []  # tokens, wanted logits

    def decode(self, ids: list[int], positions: list[int], want: list[bool]) -> list[int | None]:
        ids, positions, want = list(ids), list(positions), list(want)  # numpy arrays are welcome
        if len(self.passes) >= self._limit:
            raise Refused(f"That is pass {len(self.passes) + 1}: your loop does not end.")
        if not ids or not len(ids) == len(positions) == len(want):
            raise Refused(
                f"{len(ids)} ids, {len(positions)} positions and {len(want)} marks: pass as many of each."
            )
        if len(ids) > self._n_batch:
            raise Refused(f"This pass has {len(ids)} tokens, n_batch is {self._n_batch}.")
        rows = self._session.decode(ids, positions, [0] * len(ids), want)
        self.passes.append((len(ids), sum(map(bool, want))))
        return [None if row is None else int(row.argmax()) for row in rows]


def _expected_trace(prompt: int, n_new: int, n_batch: int) -> Trace:
    sizes = [min(n_batch, prompt - start) for start in range(0, prompt, n_batch)]
    prefill = [["prefill", size, int(number == len(sizes))] for number, size in enumerate(sizes, start=1)]
    return prefill + [["decode", 1, 1]] * (n_new - 1)


def _play(ctx: Context, prompt: list[int], n_new: int, n_batch: int) -> None:
    """Run the learner's loop and compare tokens, passes and trace."""
    where = f"P = {len(prompt)}, N = {n_new}, n_batch = {n_batch}"
    expected = ctx.cached(
        f"greedy {n_new} {prompt}", lambda: ctx.model.greedy(prompt, n_new, stop_at_eog=False)
    )
    trace = _expected_trace(len(prompt), n_new, n_batch)
    with ctx.model.session(256) as session:
        engine = Engine(session, n_batch, len(trace) + len(prompt) + 4)
        _run_misconceptions(ctx, engine, len(prompt), n_new, trace)
        remote = ctx.remote(engine, ("decode",), label="engine")
        answer = ctx.guest.call("run", remote, prompt, n_new, n_batch)
    pair = _items(answer)
    ctx.expect(len(pair) == 2, "run returns a pair: the list of tokens and the trace.", actual=answer)
    tokens, told = pair
    ctx.expect_equal(len(engine.passes), len(trace), where=f"number of passes for {where}")
    ctx.expect_equal(
        [size for size, _ in engine.passes],
        [size for _, size, _ in trace],
        where=f"tokens of each pass for {where}",
    )
    ctx.expect_equal(
        [outputs for _, outputs in engine.passes],
        [outputs for *_, outputs in trace],
        where=f"wanted logits of each pass for {where}",
    )
    ctx.expect_equal(tokens, expected, where=f"tokens for {where}")
    told = [_items(each) for each in _items(told)]
    first = [each[0] for each in told if each]
    ctx.misconception(
        "first is decode", lambda: first.count("decode") == n_new,
        "The first token comes out of the last prefill pass: it needs no decode pass.",
    )  # fmt: skip
    ctx.expect_equal(told, trace, where=f"trace for {where}")


def _items(value: object) -> list[Any]:
    """The entries of a list, tuple, array or NamedTuple; none of anything else."""
    if isinstance(value, Record):
        return list(value.as_dict().values())
    return list(value) if isinstance(value, (list, tuple, np.ndarray)) else []


def _run_misconceptions(ctx: Context, engine: Engine, prompt: int, n_new: int, trace: Trace) -> None:
    """What the passes alone show; it holds as well when the loop ended with an exception."""

    def outputs() -> int:
        return sum(wanted for _, wanted in engine.passes)

    def done() -> int:
        return sum(size for size, _ in engine.passes)

    chunks = sum(phase == "prefill" for phase, *_ in trace)
    prefilled = prompt + n_new - 1
    for ident, when, message in (
        ("all logits", lambda: outputs() == prefilled > n_new,
         f"You asked for {prompt} rows of logits in prefill and used 1."),
        ("each chunk", lambda: chunks > 1 and outputs() == n_new + chunks - 1,
         "You asked for logits at the end of every chunk. Only the last prompt token's are used."),
        ("restart", lambda: len(engine.passes) == 1 < chunks - 1,
         "The next chunk goes on where the last one ended; positions do not start at 0 again."),
        ("remainder", lambda: done() < prefilled and len(engine.passes) < len(trace) and prompt % trace[0][1],
         f"The prompt is no multiple of n_batch: its last {prompt % trace[0][1]} tokens were never run."),
        ("one pass more", lambda: len(engine.passes) == len(trace) + 1 and done() == prefilled + 1,
         "The last token needs no pass: nothing follows it."),
    ):  # fmt: skip
        ctx.misconception(ident, when, message)


def _prompt(ctx: Context, count: int) -> list[int]:
    ids = ctx.model.tokenize(TEXT)
    start = int(ctx.rng.integers(0, len(ids) - 1))
    return (ids[start:] + ids)[:count]


@check("one chunk", "tokens, passes and rows of logits of a prompt that fits into one pass")
def one_chunk(ctx: Context) -> None:
    size = int(ctx.rng.integers(12, 20))
    _play(ctx, _prompt(ctx, size), int(ctx.rng.integers(3, 6)), 32)


@check("several chunks", "a prompt longer than n_batch, with a short last chunk; exact mode")
def several_chunks(ctx: Context) -> None:
    n_batch = int(ctx.rng.integers(6, 10))
    size = 2 * n_batch + int(ctx.rng.integers(2, n_batch))
    _play(ctx, _prompt(ctx, size), int(ctx.rng.integers(3, 6)), n_batch)


@check("edges", "P = 1, P a multiple of n_batch, n_batch = 1, N = 1")
def edges(ctx: Context) -> None:
    for size, n_new, n_batch in ((1, 3, 8), (16, 2, 8), (5, 2, 1), (11, 1, 4)):
        _play(ctx, _prompt(ctx, size), n_new, n_batch)


# --- time stamps ---------------------------------------------------------------------------------


def _served(ctx: Context) -> list[Times]:
    """Three requests that arrive together and are really run one after the other, with their stamps."""
    sizes = [int(size) for size in ctx.rng.integers(18, 30, 3)]
    counts = [int(count) for count in ctx.rng.integers(6, 10, 3)]

    def make() -> list[Times]:
        prompts = [_prompt(ctx, size) for size in sizes]
        prompts[2] = prompts[1][:12] + prompts[2]  # finds 12 tokens in the cache
        arrived = time.perf_counter()
        with ctx.model.session(256) as session:
            return [
                _serve(session, arrived, prompt, 12 if number == 2 else 0, count)
                for number, (prompt, count) in enumerate(zip(prompts, counts, strict=True))
            ]

    served: list[Times] = ctx.cached("served", make)
    return served


def _serve(session: Any, arrived: float, prompt: list[int], cached: int, count: int) -> Times:
    session.seq_rm(0, cached)
    started, stamps = time.perf_counter(), []
    ids, position = prompt[cached:], cached
    for _ in range(count):
        want = [False] * (len(ids) - 1) + [True]
        positions = range(position, position + len(ids))
        row = session.decode(ids, positions, [0] * len(ids), want)[-1]
        stamps.append(time.perf_counter())
        position, ids = position + len(ids), [int(row.argmax())]
    return {"arrived": arrived, "started": started, "stamps": stamps, "prompt": len(prompt), "cached": cached}


def _delivered(ctx: Context, stamps: list[float]) -> list[tuple[float, int]]:
    """The tokens after the first one in chunks of 1 to 3, each sent when its last token is there."""
    chunks, done = [(stamps[0], 1)], 1
    while done < len(stamps):
        count = min(int(ctx.rng.integers(1, 4)), len(stamps) - done)
        done += count
        chunks.append((stamps[done - 1], count))
    return chunks


def _measure(ctx: Context, times: Times, chunks: list[tuple[float, int]], where: str) -> None:
    """Compare every field of the learner's `split`."""
    arrived, started = times["arrived"], times["started"]
    stamps = [seconds for seconds, count in chunks for _ in range(count)]
    truth = _truth(times, stamps)
    got: Times = {}
    _split_misconceptions(ctx, got, times, chunks, stamps)
    answer = ctx.guest.call("split", arrived, started, chunks, times["prompt"], times["cached"])
    got.update(zip(FIELDS, ctx.fields(answer, *FIELDS), strict=True))
    for name in FIELDS:
        if truth[name] is None or got[name] is None:
            sentence = f"{name} of {where} is {got[name]}, expected {truth[name]}."
            ctx.expect(got[name] is truth[name], sentence, expected=truth[name], actual=got[name], where=name)
        else:
            ctx.expect_close(got[name], truth[name], rtol=TOLERANCE, atol=1e-9, where=f"{name} of {where}")


def _truth(times: Times, stamps: list[float]) -> Times:
    arrived, started = times["arrived"], times["started"]
    truth: Times = {
        "queue": started - arrived,
        "itl": [b - a for a, b in pairwise(stamps)],
    }
    if not stamps:
        return truth | dict.fromkeys(("ttft", "prefill_tps", "tpot", "decode_tps", "e2e"))
    span, gaps = stamps[-1] - stamps[0], len(stamps) - 1
    truth |= {"ttft": stamps[0] - arrived, "e2e": stamps[-1] - arrived}
    truth["prefill_tps"] = (times["prompt"] - times["cached"]) / (stamps[0] - started)
    return truth | {"tpot": span / gaps if gaps else None, "decode_tps": gaps / span if gaps else None}


def _split_misconceptions(
    ctx: Context, got: Times, times: Times, chunks: list[tuple[float, int]], stamps: list[float]
) -> None:
    arrived, started, prompt = times["arrived"], times["started"], times["prompt"]
    tokens, gaps = len(stamps), max(1, len(stamps) - 1)
    span, first = (stamps[-1] - stamps[0], stamps[0]) if stamps else (0.0, 0.0)

    def near(name: str, value: float) -> bool:
        return abs(got[name] - value) <= TOLERANCE * abs(value) + 1e-9

    for ident, when, message in (
        ("failed", lambda: not stamps,
         "No token came: the request failed, and only queue and itl are known."),
        ("one token", lambda: tokens == 1 and (not got or got["tpot"] is not None),
         "One token has no gap after it: tpot and decode_tps are None."),
        ("no queue", lambda: near("ttft", first - started) and started - arrived > 1e-6,
         "TTFT begins when the request arrives. The user waits in the queue as well."),
        ("queue in prefill", lambda: near("prefill_tps", (prompt - times["cached"]) / (first - arrived)),
         "Nothing was computed in the queue: prefill runs from `started` to the first token."),
        ("cached", lambda: times["cached"] and near("prefill_tps", prompt / (first - started)),
         f"{times['cached']} prompt tokens came from the cache: they were not computed."),
        ("chunks", lambda: len(chunks) < tokens and near("tpot", span / (len(chunks) - 1)),
         f"{len(chunks)} chunks carried {tokens} tokens: count tokens, not chunks."),
        ("over n", lambda: near("tpot", span / tokens),
         f"{tokens} tokens have {tokens - 1} gaps: divide by N − 1, the first token is TTFT."),
        ("end to end", lambda: near("decode_tps", tokens / (stamps[-1] - arrived)),
         "That charges queue and prefill to decode. Count from the first token to the last."),
        ("first in decode", lambda: near("decode_tps", tokens / span),
         "The first token is prefill's: between first and last lie N − 1 tokens."),
        ("gaps of chunks", lambda: len(got["itl"]) == len(chunks) - 1 < gaps,
         "itl has one entry for each token after the first; tokens of one chunk have gaps of 0."),
    ):  # fmt: skip
        ctx.misconception(ident, when, message)


@check("token by token", "stamps of three real requests, one token a chunk; with queue and cache")
def token_by_token(ctx: Context) -> None:
    for number, times in enumerate(_served(ctx), start=1):
        _measure(ctx, times, [(stamp, 1) for stamp in times["stamps"]], f"request {number}")


@check("several at once", "the same kind of stamps, up to three tokens a chunk")
def several_at_once(ctx: Context) -> None:
    for number, times in enumerate(_served(ctx), start=1):
        _measure(ctx, times, _delivered(ctx, times["stamps"]), f"request {number} in chunks")


@check("one token, none", "a request with one output token, and one that failed")
def short_ones(ctx: Context) -> None:
    times = _served(ctx)[1]
    _measure(ctx, times, [(times["stamps"][0], 1)], "an answer of one token")
    _measure(ctx, times, [], "a failed request")
