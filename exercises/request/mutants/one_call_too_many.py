# fails: greedy run
# says: You ran the model once more than you had tokens to emit
"""Answer one chat request with a language model, greedily."""

from typing import NamedTuple

import numpy as np


class Completion(NamedTuple):
    """One answer and its bill."""

    text: str
    ids: list[int]
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


def generate(lm, messages, max_tokens, stop=()):
    """Answer `messages` with at most `max_tokens` output tokens; see starter.py for the rules."""
    prompt = []
    for text, is_markup in lm.template(messages):
        prompt += lm.tokenize(text, is_markup)
    ids = []
    data = b""
    reason = "length"
    while len(ids) < max_tokens:
        token = int(np.argmax(lm.next_logits(prompt + ids)))
        ids.append(token)
        if lm.is_eog(token):
            reason = "stop"
            break
        data += lm.piece(token)
        cuts = [data.find(s.encode()) for s in stop if s.encode() in data]
        if cuts:
            data = data[: min(cuts)]
            reason = "stop"
            break
    if len(ids) == max_tokens and max_tokens > 0:
        lm.next_logits(prompt + ids)
    return Completion(data.decode("utf-8", errors="replace"), ids, reason, len(prompt), len(ids))
