# exercise: run-local
# unusual: regular expressions over the bytes that came, plain dicts as answers, exact fractions for the rates
import json
import re
from fractions import Fraction

EVENT = re.compile(rb"(?s)\A(.*?\n)?\r?\n")
FIELD = re.compile(r"(?m)^data: ?(.*?)\r?$")


def stream(read, show):
    held, shown, reason, last, complete = b"", [], None, {}, False
    for chunk in iter(read, b""):
        held += chunk
        while not complete and (event := EVENT.match(held)):
            held = held[event.end() :]
            data = "\n".join(FIELD.findall(event[0].decode()))
            complete = data == "[DONE]"
            if complete or not data:
                continue
            last = json.loads(data)
            choice = dict(enumerate(last.get("choices") or [])).get(0, {})
            piece = (choice.get("delta") or {}).get("content")
            if piece:
                shown.append(piece)
                show(piece)
            reason = choice.get("finish_reason") or reason
        if complete:
            break
    return {"text": "".join(shown), "finish_reason": reason, "last": last, "complete": complete}


def per_second(count, milliseconds):
    return float(count * 1000 / milliseconds) if count > 0 and milliseconds else None


def read_timings(body):
    names = ("prefill_tps", "decode_tps", "ttft_ms", "context_tokens")
    if body.keys() >= {"usage"} and "timings" not in body:
        usage = body["usage"]
        return dict(
            zip(names, (None, None, None, usage["prompt_tokens"] + usage["completion_tokens"]), strict=True)
        )
    if "timings" in body:
        told = body["timings"]
        cached, new, out = told["cache_n"], told["prompt_n"], told["predicted_n"]
        load, prompt, decode = 0, Fraction(told["prompt_ms"]), Fraction(told["predicted_ms"])
    else:
        found = [body.get(f"{name}_duration", 0) for name in ("load", "prompt_eval", "eval")]
        load, prompt, decode = (Fraction(ns, 10**6) for ns in found)
        cached, out = body.get("prompt_eval_cached_count", 0), body.get("eval_count", 0)
        new = body.get("prompt_eval_count", 0) - cached
    first = load + prompt
    rates = per_second(new, prompt), per_second(out - 1, decode), float(first) if first else None
    return dict(zip(names, (*rates, cached + new + out), strict=True))
