"""Facts of this lesson, measured on the bundled model: real distributions, the two orders, a greedy loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutor.llama.reference import ReferenceModel
from tutor.llama.sampler import filtered_probs, penalised, softmax
from tutor.serving.sampling import SamplingParams

PROMPT = "The capital of France is"
SHOWN = 5
TOP_P, HOT = 0.9, 2.0
LOOP_PROMPT = "They looked at the sky and"
LOOP_TOKENS = 32
PENALTY = 1.2


def measure(model: ReferenceModel) -> dict[str, Any]:
    """The likeliest tokens, entropies by temperature, survivors of top-p in both orders, the loop."""
    row = np.array(model.next_logits(model.tokenize(PROMPT)))
    probs = softmax(row)
    order = np.argsort(-probs)[:SHOWN]
    filtered = SamplingParams(temperature=HOT, top_p=TOP_P)
    last = filtered_probs(row, filtered)
    first = filtered_probs(row / HOT, SamplingParams(temperature=1.0, top_p=TOP_P))
    return {
        "prompt": PROMPT,
        "words": [model.piece(int(i)).decode("utf-8", "replace") for i in order],
        "shares": [round(float(probs[i]), 3) for i in order],
        "temperatures": [0.5, 1.0, 1.5, 2.0],
        "tops": [round(float(softmax(row / t).max()), 3) for t in (0.5, 1.0, 1.5, 2.0)],
        "entropies": [round(_entropy(softmax(row / t)), 2) for t in (0.5, 1.0, 1.5, 2.0)],
        "top_p": TOP_P,
        "hot": HOT,
        "kept_last": int((last > 0).sum()),
        "kept_first": _rounded(int((first > 0).sum())),
        "top_last": round(float(last.max()), 3),
        "top_first": round(float(first.max()), 3),
        **_loop(model),
    }


def _entropy(probs: np.ndarray) -> float:
    """Entropy in bits."""
    positive = probs[probs > 0]
    return float(-(positive * np.log2(positive)).sum())


def _rounded(count: int) -> float:
    """To hundreds, as a float: it is compared with tolerance, since rounding decides where a tail ends."""
    return float(round(count, -2))


def _loop(model: ReferenceModel) -> dict[str, Any]:
    """The greedy continuation that repeats itself, and the same with a repetition penalty."""
    prompt = model.tokenize(LOOP_PROMPT)
    plain = model.greedy(prompt, LOOP_TOKENS)
    params = SamplingParams(repetition_penalty=PENALTY, penalty_last_n=-1)
    text = list(prompt)
    for _ in range(LOOP_TOKENS):
        text.append(int(penalised(model.next_logits(text), params, text).argmax()))
    return {
        "loop_prompt": LOOP_PROMPT,
        "loop_tokens": LOOP_TOKENS,
        "loop_text": model.detokenize(plain).decode("utf-8", "replace"),
        "penalty": PENALTY,
        "penalty_text": model.detokenize(text[len(prompt) :]).decode("utf-8", "replace"),
    }
