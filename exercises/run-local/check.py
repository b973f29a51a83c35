"""Checks of a streaming client: bytes and times of real answers, cut up and mixed as a network does it."""

from __future__ import annotations

import codecs
import json
import time
from typing import Any

from tutor.grading.kit import Context, check

QUESTIONS = (
    "Name three colors.",
    "What is 2 + 2?",
    "Who wrote Hamlet?",
    "Is the sky blue?",
    "Name two fruits.",
)
CHINESE = "Translate 'good morning' to Chinese."
OPEN = "The connection stays open after [DONE]: one more read() and your client waits for ever."
Body = dict[str, Any]
Run = dict[str, Any]


def _runs(ctx: Context, question: str, max_tokens: int) -> list[Run]:
    """The same request twice, really run: text pieces, counts, times in ns. The second finds a cache."""

    def make() -> list[Run]:
        prompt = ctx.model.chat_ids([{"role": "user", "content": question}])
        with ctx.model.session(512) as session:
            return [_answer(ctx, session, prompt, cached, max_tokens) for cached in (0, len(prompt) - 1)]

    runs: list[Run] = ctx.cached(f"{max_tokens} {question}", make)
    return runs


def _answer(ctx: Context, session: Any, prompt: list[int], cached: int, max_tokens: int) -> Run:
    session.seq_rm(0, cached)
    ids, start, stamps = prompt[cached:], cached, [time.perf_counter_ns()]
    decoder, pieces, reason = codecs.getincrementaldecoder("utf-8")("replace"), [], "length"
    for _ in range(max_tokens):
        want = [False] * (len(ids) - 1) + [True]
        token = int(session.decode(ids, range(start, start + len(ids)), [0] * len(ids), want)[-1].argmax())
        stamps.append(time.perf_counter_ns())
        start, ids = start + len(ids), [token]
        if ctx.model.is_eog(token):
            reason = "stop"
            break
        pieces.append(decoder.decode(ctx.model.piece(token)))
    times = {"prefill": stamps[1] - stamps[0], "decode": stamps[-1] - stamps[1]}
    counts = {"cached": cached, "computed": len(prompt) - cached, "output": len(stamps) - 1}
    return {"pieces": [piece for piece in pieces if piece], "reason": reason, **counts, **times}


def _chunk(choices: list[Body], **more: Any) -> Body:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, **more}


def _bodies(run: Run) -> list[Body]:
    """The objects of a stream: the role, the pieces, the reason, the counts."""
    deltas: list[Body] = [{"role": "assistant", "content": None}]
    deltas += [{"content": piece} for piece in run["pieces"]]
    chunks = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk([{"index": 0, "delta": {}, "finish_reason": run["reason"]}]))
    return [*chunks, _chunk([], usage=_usage(run), timings=_timings(run))]


def _usage(run: Run) -> Body:
    prompt = run["cached"] + run["computed"]
    details = {"cached_tokens": run["cached"]}
    return {
        "prompt_tokens": prompt, "completion_tokens": run["output"], "total_tokens": prompt + run["output"],
        "prompt_tokens_details": details,
    }  # fmt: skip


def _timings(run: Run) -> Body:
    return {
        "cache_n": run["cached"], "prompt_n": run["computed"], "prompt_ms": run["prefill"] / 1e6,
        "predicted_n": run["output"], "predicted_ms": run["decode"] / 1e6,
    }  # fmt: skip


def _ollama(run: Run, load: int) -> Body:
    fields = {
        "total_duration": load + run["prefill"] + run["decode"], "load_duration": load,
        "prompt_eval_count": run["cached"] + run["computed"], "prompt_eval_cached_count": run["cached"],
        "prompt_eval_duration": run["prefill"], "eval_count": run["output"], "eval_duration": run["decode"],
    }  # fmt: skip
    return {"model": "smollm2", "done": True, **{name: value for name, value in fields.items() if value}}


def _wire(bodies: list[Body], end: str = "\n", done: bool = True) -> list[bytes]:
    """One event each, as bytes."""
    events = [json.dumps(body, ensure_ascii=False) for body in bodies] + (["[DONE]"] if done else [])
    return [f"data: {data}{end}{end}".encode() for data in events]


class Connection:
    """Hands out chunks, and keeps what was shown. `visible[i]` is the text that chunks 0 to i complete."""

    def __init__(self, ctx: Context, chunks: list[bytes], visible: list[str], stays_open: bool) -> None:
        self.ctx, self.chunks, self.visible, self.stays_open = ctx, chunks, visible, stays_open
        self.reads, self.shown = 0, ""

    def read(self) -> bytes:
        seen = self.reads
        self.reads += 1
        if seen and seen <= len(self.visible) and self.shown != self.visible[seen - 1]:
            self.ctx.fail(
                f"When you asked for chunk {seen + 1}, the reader had not seen what was complete by then.",
                expected=self.visible[seen - 1],
                actual=self.shown,
                where="show",
            )
        if seen > len(self.chunks) or (self.stays_open and seen == len(self.chunks)):
            self.ctx.fail(OPEN if self.stays_open else "You called read() again after it had given no bytes.")
        return self.chunks[seen] if seen < len(self.chunks) else b""

    def show(self, text: str) -> None:
        if not isinstance(text, str):
            self.ctx.fail(f"show takes a str, not a {type(text).__name__}.")
        self.shown += text


def _stream(
    ctx: Context, chunks: list[bytes], expected: Body, where: str, hint: str, visible: list[str] | None = None
) -> None:
    """Run the learner's client over these chunks and compare all it says. `hint`: why it may raise here."""
    connection = Connection(ctx, chunks, visible or [], expected["complete"])
    text, names, got = expected["text"], ("text", "finish_reason", "last", "complete"), Body()
    for ident, when, message in (
        ("characters", lambda: "\ufffd" in got.get("text", connection.shown),
         "A character was cut in two by a chunk border. Decode whole lines, not chunks."),
        ("stops early", lambda: "usage" in expected["last"] and "usage" not in got["last"],
         "You stopped at finish_reason: the counts come in one more event after it."),
        ("spaces", lambda: _without_spaces(got.get("text", connection.shown), text),
         "You lost the spaces: they are part of the text."),
        ("not streamed", lambda: visible and not connection.shown and connection.reads > 2,
         "You show nothing until the answer is complete: that is no stream."),
        ("raised", lambda: not got and (visible is None or connection.reads <= len(chunks)), hint),
    ):  # fmt: skip
        ctx.misconception(ident, when, message)
    answer = ctx.guest.call("stream", ctx.callback(connection.read), ctx.callback(connection.show))
    got.update(zip(names, ctx.fields(answer, *names), strict=True))
    for name in names:
        ctx.expect_equal(got[name], expected[name], where=f"{name} of {where}", note=hint)
    ctx.expect_equal(connection.shown, text, where=f"what was shown of {where}")


def _without_spaces(got: str, text: str) -> bool:
    return got not in ("", text[: len(got)]) and got == text.replace(" ", "")[: len(got)]


def _expected(run: Run, bodies: list[Body], complete: bool = True) -> Body:
    return {
        "text": "".join(run["pieces"]),
        "finish_reason": run["reason"],
        "last": bodies[-1],
        "complete": complete,
    }


@check("whole events", "one event a chunk: text, reason, counts; shown while they come in")
def whole_events(ctx: Context) -> None:
    question = str(ctx.rng.choice(QUESTIONS))
    run = _runs(ctx, question, 10)[0]
    bodies = _bodies(run)
    visible = ["".join(run["pieces"][:count]) for count in range(len(run["pieces"]) + 1)]
    hint = "The last event is [DONE], which is no JSON; choices may be empty, content may be null."
    _stream(ctx, _wire(bodies), _expected(run, bodies), f"the answer to {question!r}", hint, visible)


@check("cut anywhere", "the same bytes in chunks of any size, also within a character; both line ends")
def cut_anywhere(ctx: Context) -> None:
    run = _runs(ctx, CHINESE, 8)[0]
    bodies = _bodies(run)
    chunk = "A chunk is not an event: keep what is left of a chunk for the next one."
    ends = "Lines may end with \\r\\n: cut at \\n and drop the \\r."
    for end, most, hint in (("\n", 200, chunk), ("\n", 7, chunk), ("\r\n", 30, ends)):
        data, chunks = b"".join(_wire(bodies, end)), []
        while data:
            size = int(ctx.rng.integers(1, most + 1))
            chunks.append(data[:size])
            data = data[size:]
        ctx.misconception("line ends", lambda end=end: end == "\r\n", ends)
        _stream(ctx, chunks, _expected(run, bodies), f"{len(chunks)} chunks, line end {end!r}", hint)


@check("other lines", "comments, other fields, no space after the colon, two data lines, two choices")
def other_lines(ctx: Context) -> None:
    run = _runs(ctx, str(ctx.rng.choice(QUESTIONS)), 4)[0]
    bodies = _bodies(run)
    bodies[1]["choices"].append({"index": 1, "delta": {"content": "of another sample"}})
    events = _wire(bodies)
    events[0] = b": keep-alive\n\n" + events[0]
    events[1] = b"\n\nevent: chunk\nid: 7\n" + events[1].replace(b"data: ", b"data:", 1)
    events[2] = b"retry: 3000\n\n" + events[2].replace(b', "object"', b',\ndata: "object"', 1)
    hint = "Only data lines carry data, maybe without a space; they are joined. Only choices[0] is yours."
    _stream(ctx, events, _expected(run, bodies), "a stream with comments and other fields", hint)


@check("cut off", "a body that ends without [DONE]: what arrived, and that it is not complete")
def cut_off(ctx: Context) -> None:
    run = _runs(ctx, str(ctx.rng.choice(QUESTIONS)), 6)[0]
    kept = 3
    bodies = _bodies(run)[:kept]
    chunks = [*_wire(bodies, done=False), b'data: {"choices": [{"delta": {"content": "lost']
    short = {**run, "pieces": run["pieces"][: kept - 1], "reason": None}
    hint = "The last event has no blank line: it never arrived in full, so it does not count."
    _stream(ctx, chunks, _expected(short, bodies, complete=False), "a connection that broke", hint)


def _compare(ctx: Context, body: Body, expected: tuple[Any, ...], where: str) -> None:
    names, got = ("prefill_tps", "decode_tps", "ttft_ms", "context_tokens"), Body()
    _misconceptions(ctx, body, got)
    got.update(zip(names, ctx.fields(ctx.guest.call("read_timings", body), *names), strict=True))
    for name, value in zip(names, expected, strict=True):
        if value is None or got[name] is None:
            sentence = f"{name} of {where} is {got[name]}, expected {value}."
            ctx.expect(got[name] is value, sentence, expected=value, actual=got[name], where=name)
        else:
            ctx.expect_close(got[name], value, rtol=1e-6, where=f"{name} of {where}")


def _misconceptions(ctx: Context, body: Body, got: Body) -> None:
    t = body.get("timings", body)
    output, prompt = t.get("predicted_n", t.get("eval_count", 0)), t.get("prompt_eval_count", 0)
    decode = t.get("predicted_ms", 0) / 1e3 or t.get("eval_duration", 0) / 1e9
    prefill = t.get("prompt_ms", 0) / 1e3 or t.get("prompt_eval_duration", 0) / 1e9
    cached = t.get("cache_n", 0) or t.get("prompt_eval_cached_count", 0)

    def near(name: str, value: float) -> bool:
        return abs(got[name] - value) <= 1e-6 * abs(value)

    for ident, when, message in (
        ("ns", lambda: near("ttft_ms", t["load_duration"] + t["prompt_eval_duration"]),
         "You took nanoseconds for milliseconds: a million times too long."),
        ("load", lambda: near("ttft_ms", prefill * 1e3) and t["load_duration"],
         "Before the first token the model was loaded: add load_duration."),
        ("total", lambda: near("decode_tps", (output - 1) * 1e9 / t["total_duration"]),
         "You charged loading and prefill to decode: total_duration is everything."),
        ("one token", lambda: output == 1 and got["decode_tps"] is not None,
         "One output token has no gap after it, so there is no decode rate: None."),
        ("first token", lambda: near("decode_tps", output / decode),
         f"{output} tokens have {output - 1} gaps: the first one came with prefill."),
        ("cached", lambda: cached and near("prefill_tps", (t.get("prompt_n", 0) + cached if "cache_n" in t
                                                           else prompt) / prefill),
         "Cached tokens were not computed: leave them out of the prefill rate."),
        ("context", lambda: cached and got["context_tokens"] == t["prompt_n"] + output,
         "The cached tokens are in the context too: add cache_n."),
        ("absent", lambda: not got and "done" in body,
         "A field that is zero is left out: take 0 for it, and never divide by 0."),
        ("no times", lambda: "timings" not in body and "usage" in body,
         "OpenAI's usage counts tokens and tells no time: every rate is None."),
    ):  # fmt: skip
        ctx.misconception(ident, when, message)


def _truth(run: Run, load: int = 0) -> tuple[Any, ...]:
    """The rates of a run, from what was measured."""
    decode = (run["output"] - 1) * 1e9 / run["decode"] if run["output"] > 1 else None
    prefill = run["computed"] * 1e9 / run["prefill"]
    return prefill, decode, (load + run["prefill"]) / 1e6, run["cached"] + run["computed"] + run["output"]


@check("llama.cpp timings", "cold, cached and one-token answers, to 1e-6")
def llama_timings(ctx: Context) -> None:
    question = str(ctx.rng.choice(QUESTIONS))
    for tokens in (8, 1):
        for run in _runs(ctx, question, tokens):
            _compare(
                ctx,
                _bodies(run)[-1],
                _truth(run),
                f"llama.cpp, {run['cached']} cached, {run['output']} written",
            )


@check("Ollama durations", "cold, cached and one-token answers in nanoseconds, to 1e-6")
def ollama_durations(ctx: Context) -> None:
    question = str(ctx.rng.choice(QUESTIONS))
    for tokens in (8, 1):
        for run in _runs(ctx, question, tokens):
            load = 0 if run["cached"] else int(ctx.rng.integers(10**8, 10**9))
            where = f"Ollama, {run['cached']} cached, {run['output']} written"
            _compare(ctx, _ollama(run, load), _truth(run, load), where)


@check("no time, no token", "made-up bodies: what would divide by zero, or by almost nothing, is None")
def no_time(ctx: Context) -> None:
    first = {"cache_n": 0, "prompt_n": 5, "prompt_ms": 0.0, "predicted_n": 1, "predicted_ms": 0.001}
    cached = {"cache_n": 7, "prompt_n": 0, "prompt_ms": 3.0, "predicted_n": 2, "predicted_ms": 10.0}
    loaded = {"load_duration": 5_000_000, "prompt_eval_count": 4, "prompt_eval_duration": 5_000_000}
    for body, expected in (
        ({"timings": first}, (None, None, None, 6)),
        ({"timings": cached}, (None, 100.0, 3.0, 9)),
        ({"done": True, **loaded}, (800.0, None, 10.0, 4)),
        ({"done": True, "eval_count": 3}, (None, None, None, 3)),
    ):
        _compare(ctx, body, expected, f"{body}")


@check("OpenAI usage", "counts without times: None for every rate")
def openai_usage(ctx: Context) -> None:
    for run in _runs(ctx, str(ctx.rng.choice(QUESTIONS)), 8):
        expected = (None, None, None, run["cached"] + run["computed"] + run["output"])
        ctx.misconception(
            "no times", True, "OpenAI's usage counts tokens and tells no time: every rate is None."
        )
        _compare(ctx, _chunk([], usage=_usage(run)), expected, "OpenAI")
