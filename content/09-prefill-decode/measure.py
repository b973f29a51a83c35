"""Facts of this lesson: what changes in the logits when a prompt is cut into passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutor.llama.reference import ReferenceModel

TEXT = (
    "A lighthouse keeper writes down the weather every evening: wind, cloud, the height of the waves. "
    "After forty years the book tells more about the sea than any map does."
)
CHUNK = 7


def measure(model: ReferenceModel) -> dict[str, Any]:
    """Logits after a prompt, computed in one pass and in passes of a few tokens, compared."""
    ids = model.tokenize(TEXT)
    whole, passes = _prefill(model, ids, len(ids))
    cut, cut_passes = _prefill(model, ids, CHUNK)
    return {
        "prompt_tokens": len(ids),
        "chunk": CHUNK,
        "passes_whole": passes,
        "passes_cut": cut_passes,
        "values_that_differ": int((whole != cut).sum()),
    }


def _prefill(model: ReferenceModel, ids: list[int], chunk: int) -> tuple[NDArray[np.float32], int]:
    """The logits after the last token, and how many passes it took (exact mode)."""
    with model.session(256) as session:
        row = None
        for first in range(0, len(ids), chunk):
            part = ids[first : first + chunk]
            want = [first + i == len(ids) - 1 for i in range(len(part))]
            row = session.decode(part, range(first, first + len(part)), [0] * len(part), want)[-1]
        assert row is not None
        return row, session.calls
