"""The most probable tokens of a row of logits, as the events carry them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tutor.llama.reference import ReferenceModel
from tutor.llama.sampler import softmax
from tutor.trace.events import LogitsComputed

Top = tuple[tuple[int, ...], tuple[str, ...], tuple[float, ...]]


def top_tokens(model: ReferenceModel, probabilities: NDArray[np.float64], count: int) -> Top:
    """Ids, texts and probabilities of the `count` likeliest tokens, likeliest first."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    ids = tuple(int(i) for i in order)
    texts = tuple(model.piece(i).decode("utf-8", "replace") for i in ids)
    return ids, texts, tuple(float(probabilities[i]) for i in ids)


def logits_event(
    model: ReferenceModel, position: int, logits: NDArray[np.float32], count: int = 8
) -> LogitsComputed:
    """What the model expects after `position`; entropy in bits."""
    probabilities = softmax(logits)
    positive = probabilities[probabilities > 0]
    entropy = float(-(positive * np.log2(positive)).sum())
    ids, texts, values = top_tokens(model, probabilities, count)
    return LogitsComputed(position, ids, texts, values, entropy)
