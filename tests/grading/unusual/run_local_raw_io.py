# exercise: run-local
# unusual: the connection as a raw file whose lines are read, recursion over events, numpy floats as rates
import io
import json

import numpy as np


class Body(io.RawIOBase):
    """Hands out what came; asks for more only when all of it was taken."""

    def __init__(self, read):
        self.more, self.held = read, b""

    def readable(self):
        return True

    def readinto(self, buffer):
        if not self.held:
            self.held = self.more()
        size = min(len(buffer), len(self.held))
        buffer[:size], self.held = self.held[:size], self.held[size:]
        return size


def next_event(lines, data=()):
    line = lines.readline()
    if not line.endswith(b"\n"):
        return None
    text = line.rstrip(b"\r\n").decode("utf8")
    if text[:5] == "data:":
        data = (*data, text[6:] if text[5:6] == " " else text[5:])
    return "\n".join(data) if data and text == "" else next_event(lines, data)


def stream(read, show):
    lines, pieces, reasons, last = Body(read), [], [None], {}
    while (event := next_event(lines)) not in (None, "[DONE]"):
        last = json.loads(event)
        first = (last["choices"] or [{}])[0]
        piece, reason = first.get("delta", {}).get("content"), first.get("finish_reason")
        if piece:
            pieces += piece
            show(piece)
        if reason:
            reasons.append(reason)
    return {
        "text": "".join(pieces),
        "finish_reason": reasons[-1],
        "last": last,
        "complete": event is not None,
    }


def rate(count, seconds):
    with np.errstate(all="ignore"):
        value = np.float64(count) / np.float64(seconds)
    return value if np.isfinite(value) and value > 0 else None


def read_timings(body):
    names = ("prefill_tps", "decode_tps", "ttft_ms", "context_tokens")
    if "timings" in body:
        cached, computed, prefill, output, decode = (
            body["timings"][name]
            for name in ("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
        )
        scale, load = 1e-3, 0
    elif "usage" in body:
        return dict.fromkeys(names) | {
            "context_tokens": body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
        }
    else:
        ask = lambda name: body.get(name, 0)  # noqa: E731
        cached, output = ask("prompt_eval_cached_count"), ask("eval_count")
        computed = ask("prompt_eval_count") - cached
        load, prefill, decode = ask("load_duration"), ask("prompt_eval_duration"), ask("eval_duration")
        scale = 1e-9
    wait = (load + prefill) * scale * 1e3
    told = rate(computed, prefill * scale), rate(output - 1, decode * scale), wait if wait else None
    return dict(zip(names, (*told, cached + computed + output), strict=True))
