"""One answer as three servers would write it on the wire, and what its timing fields say.

- openai: chat completion chunks as server-sent events. `usage` counts tokens and tells no time.
- llama.cpp: the same chunks; the last one also has `timings`, in milliseconds (llama.cpp, tools/server).
- ollama: one JSON object a line; the last one has counts and durations in nanoseconds, and a field that is
  zero is left out (Ollama, api/types.go and https://docs.ollama.com/api/usage).

The objects are those of `tutor serve` (tutor/endpoint/); here they are filled from one measured answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from tutor.endpoint import ollama_schemas as o
from tutor.endpoint import schemas as s

DIALECTS = ("openai", "llama.cpp", "ollama")
MS, NS = 1e3, 1e9
FINGERPRINT = "lab"
Body = dict[str, Any]


@dataclass(frozen=True)
class Wire:
    """What every frame of an answer repeats. `created`: seconds since 1970."""

    call: int
    model: str
    created: int


@dataclass(frozen=True)
class Bill:
    """What one answer took, measured. Counts are tokens, times are seconds.

    The first output token falls out of prefill, so `decode` is the time of the other ones.
    """

    num_cached: int
    num_computed: int
    num_output: int
    load: float
    prefill: float
    decode: float
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True)
class Rates:
    """What a client can know from one answer's fields; None where the dialect does not say."""

    prefill_tps: float | None
    decode_tps: float | None
    ttft_ms: float | None
    context_tokens: int | None


def request_text(dialect: str, model: str, message: str, max_tokens: int) -> str:
    """The request: its first line and its body."""
    messages = [{"role": "user", "content": message}]
    if dialect == "ollama":
        body: Body = {"model": model, "messages": messages, "options": {"num_predict": max_tokens}}
        return f"POST /api/chat\n{_json(body)}"
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": True}
    body["stream_options"] = {"include_usage": True}
    return f"POST /v1/chat/completions\n{_json(body)}"


def piece_text(dialect: str, wire: Wire, text: str) -> str:
    """The frame that carries a piece of text."""
    if dialect == "ollama":
        return _text(_ollama(wire, text, done=False)) + "\n"
    return _event(_chunk(wire, [s.ChunkChoice(0, s.Delta(content=text), None, None)]))


def last_text(dialect: str, wire: Wire, bill: Bill) -> str:
    """The frames that end the answer: why it ended, the counts and times, the mark that ends the stream."""
    if dialect == "ollama":
        return _text(_last(dialect, wire, bill)) + "\n"
    end = _chunk(wire, [s.ChunkChoice(0, s.Delta(), None, bill.finish_reason)])
    return _event(end) + _event(_last(dialect, wire, bill)) + "data: [DONE]\n\n"


def last_body(dialect: str, wire: Wire, bill: Bill) -> Body:
    """The JSON object that has the counts and times, as a client reads it."""
    body: Body = msgspec.to_builtins(_last(dialect, wire, bill))
    return body


def _last(dialect: str, wire: Wire, bill: Bill) -> msgspec.Struct:
    if dialect == "ollama":
        return _ollama(wire, "", done=True, **_durations(bill))
    prompt = bill.num_cached + bill.num_computed
    details = s.PromptDetails(bill.num_cached)
    usage = s.Usage(prompt, bill.num_output, prompt + bill.num_output, details)
    return _chunk(wire, [], usage, _timings(bill) if dialect == "llama.cpp" else None)


def timing_fields(body: Body) -> Body:
    """The part of the last body that has counts and times, flat."""
    if "timings" in body:
        return dict(body["timings"])
    if "usage" in body:
        usage = dict(body["usage"])
        details = usage.pop("prompt_tokens_details", {})
        return {**usage, "cached_tokens": details.get("cached_tokens", 0)}
    counts = [name for name in o.Durations.__struct_fields__ if name != "done_reason"]
    return {name: body[name] for name in counts if name in body}


def rates(body: Body) -> Rates:
    """Rates of an answer from its last body, whichever dialect it is in.

    prefill tokens/s = tokens computed / prefill time; decode tokens/s = (output tokens − 1) / decode time,
    since both servers start the decode clock at the first token. A rate over no time or no token is None.
    """
    if "timings" in body:
        t = body["timings"]
        held = t["cache_n"] + t["prompt_n"] + t["predicted_n"]
        return _rates(t["prompt_n"], t["prompt_ms"] / MS, t["predicted_n"], t["predicted_ms"] / MS, 0.0, held)
    if "usage" in body:
        return Rates(None, None, None, body["usage"]["total_tokens"])
    prompt, output = body.get("prompt_eval_count", 0), body.get("eval_count", 0)
    computed = prompt - body.get("prompt_eval_cached_count", 0)
    seconds = [body.get(f"{name}_duration", 0) / NS for name in ("prompt_eval", "eval", "load")]
    return _rates(computed, seconds[0], output, seconds[1], seconds[2], prompt + output)


def _rates(computed: int, prefill: float, output: int, decode: float, load: float, held: int | None) -> Rates:
    return Rates(
        computed / prefill if computed > 0 and prefill > 0 else None,
        (output - 1) / decode if output > 1 and decode > 0 else None,
        (load + prefill) * MS if load + prefill > 0 else None,
        held,
    )


def _timings(bill: Bill) -> s.Timings:
    """llama-server's figures. Its rate and time per token leave the first output token out, as ours do."""
    prompt_ms, predicted_ms = bill.prefill * MS, bill.decode * MS
    gaps = bill.num_output - 1
    return s.Timings(
        cache_n=bill.num_cached,
        prompt_n=bill.num_computed,
        prompt_ms=round(prompt_ms, 3),
        prompt_per_token_ms=round(prompt_ms / bill.num_computed, 3),
        prompt_per_second=round(MS * bill.num_computed / prompt_ms, 3),
        predicted_n=bill.num_output,
        predicted_ms=round(predicted_ms, 3),
        predicted_per_token_ms=round(predicted_ms / gaps, 3) if gaps else 0.0,
        predicted_per_second=round(MS * gaps / predicted_ms, 3) if gaps else 0.0,
    )


def _durations(bill: Bill) -> dict[str, Any]:
    return {
        "done_reason": bill.finish_reason,
        "total_duration": round((bill.load + bill.prefill + bill.decode) * NS),
        "load_duration": round(bill.load * NS),
        "prompt_eval_count": bill.num_cached + bill.num_computed,
        "prompt_eval_cached_count": bill.num_cached,
        "prompt_eval_duration": round(bill.prefill * NS),
        "eval_count": bill.num_output,
        "eval_duration": round(bill.decode * NS),
    }


def _ollama(wire: Wire, text: str, *, done: bool, **durations: Any) -> o.OllamaChatAnswer:
    stamp = datetime.fromtimestamp(wire.created, UTC).isoformat().replace("+00:00", "Z")
    message = o.OllamaAnswerMessage("assistant", text)
    return o.OllamaChatAnswer(model=wire.model, created_at=stamp, message=message, done=done, **durations)


def _chunk(
    wire: Wire, choices: list[s.ChunkChoice], usage: s.Usage | None = None, timings: s.Timings | None = None
) -> s.ChatChunk:
    name: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    answer_id = f"chatcmpl-{wire.call}"
    return s.ChatChunk(answer_id, name, wire.created, wire.model, choices, FINGERPRINT, usage, timings)


def _json(body: Body) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _text(body: msgspec.Struct) -> str:
    return msgspec.json.encode(body).decode()


def _event(body: msgspec.Struct) -> str:
    return f"data: {_text(body)}\n\n"
