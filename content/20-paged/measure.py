"""Attention over keys and values that lie in randomly chosen blocks, against the model's own output."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tutor.llama.reference import ReferenceModel

TEXT = (
    "A library lends books to anyone who asks. The shelves are full, and the reader never sees them: "
    "a card in the catalogue says where each volume stands, and a clerk fetches it."
)
LAYER = 10
BLOCK = 16
POOL_BLOCKS = 24
Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64


def measure(model: ReferenceModel) -> dict[str, int | float | str | list[int]]:
    """Largest differences: with the block table from without, and from the model's own kqv_out."""
    names = [f"{part}-{LAYER}" for part in ("Qcur", "Kcur", "Vcur", "kqv_out")]
    seen = model.capture(model.tokenize(TEXT), names)
    queries = seen[names[0]][-1].reshape(-1, Q_HEADS, HEAD_DIM)
    keys, values = (seen[name][-1].reshape(-1, KV_HEADS, HEAD_DIM) for name in names[1:3])
    truth = seen[names[3]][-1].reshape(len(queries), -1)
    table = np.random.default_rng(7).permutation(POOL_BLOCKS)[: -(-len(keys) // BLOCK)]
    paged = _attention(queries, _through_pool(keys, table), _through_pool(values, table))
    straight = _attention(queries, keys, values)
    return {
        "tokens": len(keys),
        "layer": LAYER,
        "paging_difference": float(np.abs(paged - straight).max()),
        "model_difference": _bound(float(np.abs(paged - truth).max())),
        "largest_output": round(float(np.abs(truth).max()), 1),
    }


def _through_pool(rows: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Writes rows [tokens, 3, 64] into the blocks of `table`, then gathers them again."""
    pool = np.full((POOL_BLOCKS, BLOCK, *rows.shape[1:]), np.float32(1e3))
    for position, row in enumerate(rows):
        pool[table[position // BLOCK], position % BLOCK] = row
    gathered: np.ndarray = pool[table].reshape(-1, *rows.shape[1:])[: len(rows)]
    return gathered


def _attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Causal attention, [tokens, 576]."""
    group = Q_HEADS // KV_HEADS
    scores = np.einsum("qhd,khd->hqk", queries, keys.repeat(group, axis=1)) / np.sqrt(HEAD_DIM)
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, values.repeat(group, axis=1)).reshape(len(queries), -1)


def _bound(value: float) -> float:
    """The next multiple of 0.005: another CPU rounds a little differently."""
    return math.ceil(value * 200) / 200
