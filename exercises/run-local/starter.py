"""Read a streamed answer and its timing fields, as a client does."""

import json
from typing import NamedTuple


class Reply(NamedTuple):
    """One streamed answer.

    text: all pieces of text, joined.
    finish_reason: "stop", "length", or None if the stream never said.
    last: the last JSON object of the stream; the counts are in it. {} if there was none.
    complete: True if `[DONE]` arrived.
    """

    text: str
    finish_reason: str | None
    last: dict
    complete: bool


class Rates(NamedTuple):
    """What the fields of one answer tell. None where they do not tell it.

    prefill_tps: prompt tokens computed per second of prompt time.
    decode_tps: output tokens per second, over the time after the first one.
    ttft_ms: milliseconds until the first token: loading the model and prompt time.
    context_tokens: tokens in the context after the answer: prompt, cached or not, and output.
    """

    prefill_tps: float | None
    decode_tps: float | None
    ttft_ms: float | None
    context_tokens: int | None


def stream(read, show):
    """Read a chat completion that arrives as server-sent events (SSE).

    read() -> bytes   the next bytes of the body, any number of them; b"" when the body has ended
    show(text)        call it with each piece of text as soon as its event is complete

    The body is UTF-8. An event is one or more lines and ends with a blank line. Lines end with "\n" or "\r\n".
    A line that starts with ":" is a comment. `data:` and at most one space come before the data; several
    data lines of one event are joined with "\n". Other fields are ignored.
    The data is a JSON object, or `[DONE]`: then return and do not read on.
    The text is in choices[0].delta.content, the reason in choices[0].finish_reason; either may be missing or
    null, and `choices` may be empty. An event without its blank line at the end of the body does not count.
    Returns a Reply.
    """
    raise NotImplementedError("collect bytes, cut off whole events, show their text")


def read_timings(body):
    """The rates of an answer, from its last JSON object (a dict) in one of three dialects.

    llama.cpp: body["timings"] has cache_n, prompt_n, prompt_ms, predicted_n, predicted_ms.
        prompt_n are the computed tokens, cache_n those that were in the cache. Milliseconds.
    OpenAI: no "timings", but body["usage"] has prompt_tokens and completion_tokens. It tells no time.
    Ollama: load_duration, prompt_eval_count, prompt_eval_cached_count, prompt_eval_duration, eval_count,
        eval_duration. prompt_eval_count counts cached tokens too. Nanoseconds. A zero field is left out.

    In both dialects with times, the first output token falls into the prompt time.
    A rate over no time, or over no token, is None. Returns Rates.
    """
    raise NotImplementedError("tell the dialects apart, mind the units")
