"""Which cached keys change when one token of the text is replaced, on the bundled model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tutor.llama.reference import ReferenceModel

TEXT = "A river carries water from the mountains to the sea, and on its way it carves valleys."
REPLACEMENT = " train"
POSITION = 5
LAYER = 10


def measure(model: ReferenceModel) -> dict[str, int | float | str | list[int]]:
    """Counts the rows (tokens) whose post-RoPE key differs, in layer 0 and in layer 10."""
    before = model.tokenize(TEXT)
    after = list(before)
    after[POSITION] = model.tokenize(REPLACEMENT)[0]
    names = ["Kcur-0", f"Kcur-{LAYER}"]
    keys_before = model.capture(before, names)
    keys_after = model.capture(after, names)
    changed = [_changed_rows(keys_before[name][-1], keys_after[name][-1]) for name in names]
    return {
        "edit_tokens": len(before),
        "edit_position": POSITION,
        "edit_layer": LAYER,
        "edit_rows_layer_0": len(changed[0]),
        "edit_rows_above": len(changed[1]),
        "edit_first_row_above": changed[1][0],
    }


def _changed_rows(a: np.ndarray, b: np.ndarray) -> list[int]:
    """Rows of two [tokens, heads, head_dim] arrays that differ by more than rounding."""
    rows_a, rows_b = a.reshape(-1, 192), b.reshape(-1, 192)
    differs = np.abs(rows_a - rows_b).max(axis=1) > 1e-4
    return [int(row) for row in np.flatnonzero(differs)]
