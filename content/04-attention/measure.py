"""Facts of this lesson, measured on the bundled model: who reads whom, and what a changed token changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutor.llama.reference import ReferenceModel

TEXT = "The cat sat on the mat because it was tired"
LAYER, HEAD = 13, 8
PREVIOUS_LAYER, PREVIOUS_HEAD = 16, 0
SHOWN = 4
CHANGED, REPLACEMENT = 4, " a"
CHANGED_BY = 1e-3

Array = NDArray[np.float32]


def measure(model: ReferenceModel) -> dict[str, Any]:
    """What the last token reads, two habits of heads, and the key rows that a changed token changes."""
    ids = model.tokenize(TEXT)
    maps = _maps(model, ids)
    last = maps[LAYER, HEAD, -1]
    later = np.arange(1, len(ids))
    habit = maps[PREVIOUS_LAYER, PREVIOUS_HEAD]
    words = [model.piece(token).decode().strip() for token in ids]
    order, habitual = (np.argsort(-row)[:SHOWN] for row in (last, habit[-1]))
    first_rows = maps[:, :, 1:, 0].mean(axis=(1, 2))
    return {
        "text": TEXT,
        "tokens": len(ids),
        "layer": LAYER,
        "head": HEAD,
        "reader": words[-1],
        "read_words": [words[place] for place in order],
        "read_shares": [round(float(last[place]), 3) for place in order],
        "first_share": round(float(first_rows.mean()), 3),
        "first_share_most": round(float(first_rows.max()), 3),
        "first_share_layer": int(first_rows.argmax()),
        "previous_layer": PREVIOUS_LAYER,
        "previous_head": PREVIOUS_HEAD,
        "previous_words": [words[place] for place in habitual],
        "previous_shares": [round(float(habit[-1, place]), 3) for place in habitual],
        "previous_share": round(float(habit[later, later - 1].mean()), 3),
        **_changed(model, ids),
    }


def _maps(model: ReferenceModel, ids: list[int]) -> Array:
    """Attention probabilities of every layer and head, [layers, heads, T, T]."""
    seen = model.capture(ids, lambda name: name.startswith("kq_soft_max-"))
    layers = (seen[f"kq_soft_max-{layer}"][-1][0] for layer in range(model.dims.n_layer))
    return np.stack([layer[:, :, : len(ids)] for layer in layers])


def _changed(model: ReferenceModel, ids: list[int]) -> dict[str, Any]:
    """How many rows of K another token at one position changes, in layers 0 and 1."""
    other = [*ids[:CHANGED], model.tokenize(REPLACEMENT)[0], *ids[CHANGED + 1 :]]
    rows = [_changed_rows(model, ids, other, layer) for layer in (0, 1)]
    return {
        "changed_position": CHANGED,
        "changed_word": model.piece(ids[CHANGED]).decode().strip(),
        "changed_to": REPLACEMENT.strip(),
        "changed_rows_0": len(rows[0]),
        "changed_rows_1": len(rows[1]),
        "changed_first_1": rows[1][0],
    }


def _changed_rows(model: ReferenceModel, ids: list[int], other: list[int], layer: int) -> list[int]:
    name = f"Kcur-{layer}"
    before, after = (model.capture(tokens, [name])[name][-1].reshape(len(ids), -1) for tokens in (ids, other))
    return [int(row) for row in np.flatnonzero(np.abs(before - after).max(axis=1) > CHANGED_BY)]
