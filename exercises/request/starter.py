"""Answer one chat request with a language model, greedily."""

from typing import NamedTuple

import numpy as np


class Completion(NamedTuple):
    """One answer and its bill.

    text: what the user sees. Without the end marker, cut just before a stop string.
    ids: every id that you picked, in order. An end-of-generation id and the ids that spell
        a stop string are in it.
    finish_reason: "stop" (end-of-generation id or stop string) or "length" (max_tokens reached).
    prompt_tokens: number of prompt ids, markup included.
    completion_tokens: number of ids that you picked, so len(ids).
    """

    text: str
    ids: list[int]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


def generate(lm, messages, max_tokens, stop=()):
    """Answer `messages` with at most `max_tokens` output tokens.

    messages: list of {"role": ..., "content": ...}
    max_tokens: 0 or more; with 0 the model is not run at all
    stop: strings that end the answer; the text is cut before the earliest match

    `lm` has five methods:
        lm.template(messages)          -> list of (text, is_markup) parts, in order
        lm.tokenize(text, special)     -> list of ids; special=True turns markup into special ids
        lm.next_logits(ids)            -> float32 array [49152], scores for the id that follows `ids`
        lm.piece(id)                   -> the bytes of one id (maybe half a character)
        lm.is_eog(id)                  -> True if the id means "the answer ends here"

    Greedy: always pick the id with the highest score. `next_logits` must be called exactly once
    for each id that you pick, with all ids so far (prompt and answer).
    Decode the joined bytes with bytes.decode("utf-8", errors="replace").
    Returns a Completion.
    """
    raise NotImplementedError("template, tokenize, then one next_logits call per output token")
