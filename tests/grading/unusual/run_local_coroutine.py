# exercise: run-local
# unusual: a coroutine that is fed one byte at a time, a dataclass, rates as the inverse of a mean gap
import json
from dataclasses import dataclass, field


@dataclass
class Reply:
    text: str = ""
    finish_reason: str | None = None
    last: dict = field(default_factory=dict)
    complete: bool = False


@dataclass
class Rates:
    prefill_tps: float | None = None
    decode_tps: float | None = None
    ttft_ms: float | None = None
    context_tokens: int | None = None


def parser(reply, show):
    lines = []
    while not reply.complete:
        line = bytearray()
        while (byte := (yield)) != 10:
            line.append(byte)
        text = line.decode().rstrip("\r")
        name, _, value = text.partition(":")
        if name == "data":
            lines.append(value[value.startswith(" ") :])
        if text or not lines:
            continue
        data, lines = "\n".join(lines), []
        if data == "[DONE]":
            reply.complete = True
        else:
            take(json.loads(data), reply, show)
    yield


def take(body, reply, show):
    reply.last = body
    for number, choice in enumerate(body.get("choices", ())):
        if number == 0:
            piece = choice.get("delta", {}).get("content") or ""
            reply.text += piece
            if piece:
                show(piece)
            reply.finish_reason = choice.get("finish_reason") or reply.finish_reason


def stream(read, show):
    reply = Reply()
    machine = parser(reply, show)
    next(machine)
    while not reply.complete:
        chunk = read()
        if not chunk:
            break
        for byte in chunk:
            machine.send(byte)
            if reply.complete:
                break
    return reply


def inverse(seconds, count):
    if count < 1 or seconds == 0:
        return None
    return 1 / (seconds / count)


def read_timings(body):
    match body:
        case {"timings": t}:
            prefill, decode = t["prompt_ms"] * 1e-3, t["predicted_ms"] * 1e-3
            context = sum(t[name] for name in ("cache_n", "prompt_n", "predicted_n"))
            return Rates(
                inverse(prefill, t["prompt_n"]),
                inverse(decode, t["predicted_n"] - 1),
                t["prompt_ms"] or None,
                context,
            )
        case {"usage": {"prompt_tokens": prompt, "completion_tokens": output}}:
            return Rates(context_tokens=prompt + output)
    prompt, output = body.get("prompt_eval_count", 0), body.get("eval_count", 0)
    computed = prompt - body.get("prompt_eval_cached_count", 0)
    fields = ("load_duration", "prompt_eval_duration", "eval_duration")
    load, prefill, decode = (body.get(name, 0) * 1e-9 for name in fields)
    ttft = (load + prefill) * 1e3 or None
    return Rates(inverse(prefill, computed), inverse(decode, output - 1), ttft, prompt + output)
