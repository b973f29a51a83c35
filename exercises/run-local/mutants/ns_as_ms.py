# fails: Ollama durations
# says: a million times too long
"""Read a streamed answer and its timing fields, as a client does."""

import json
from typing import NamedTuple


class Reply(NamedTuple):
    """One streamed answer."""

    text: str
    finish_reason: str | None
    last: dict
    complete: bool


class Rates(NamedTuple):
    """What the fields of one answer tell. None where they do not tell it."""

    prefill_tps: float | None
    decode_tps: float | None
    ttft_ms: float | None
    context_tokens: int | None


def stream(read, show):
    """Read server-sent events from `read`, give their text to `show`; see starter.py for the rules."""
    text, reason, last = "", None, {}
    for data in events(read):
        if data == "[DONE]":
            return Reply(text, reason, last, True)
        last = json.loads(data)
        for choice in last.get("choices", [])[:1]:
            piece = choice.get("delta", {}).get("content")
            if piece:
                text += piece
                show(piece)
            reason = choice.get("finish_reason") or reason
    return Reply(text, reason, last, False)


def events(read):
    """The data of each whole event. Lines are cut from bytes: a character may still be in two chunks."""
    buffer, data = b"", []
    while chunk := read():
        buffer += chunk
        while b"\n" in buffer:
            line, buffer = buffer.split(b"\n", 1)
            line = line.removesuffix(b"\r").decode("utf-8")
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield "\n".join(data)
                data = []


def read_timings(body):
    """The rates of an answer, from its last JSON object in one of three dialects."""
    if "timings" in body:
        t = body["timings"]
        computed, prefill, load = t["prompt_n"], t["prompt_ms"] / 1e3, 0
        output, decode = t["predicted_n"], t["predicted_ms"] / 1e3
        context = t["cache_n"] + computed + output
    elif "usage" in body:
        usage = body["usage"]
        return Rates(None, None, None, usage["prompt_tokens"] + usage["completion_tokens"])
    else:
        prompt, output = body.get("prompt_eval_count", 0), body.get("eval_count", 0)
        computed = prompt - body.get("prompt_eval_cached_count", 0)
        prefill, decode = body.get("prompt_eval_duration", 0) / 1e3, body.get("eval_duration", 0) / 1e3
        load, context = body.get("load_duration", 0) / 1e3, prompt + output
    return Rates(
        computed / prefill if prefill and computed else None,
        (output - 1) / decode if decode and output > 1 else None,
        (load + prefill) * 1e3 if load + prefill else None,
        context,
    )
