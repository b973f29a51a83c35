"""Facts of this lesson, measured on the bundled model: the logit lens and the rounding of SwiGLU."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutor.llama.reference import ReferenceModel

PROMPT = "The capital of Italy is"
SHOWN_BLOCKS = (0, 4, 9, 14, 19, 23, 27, 28, 29)
ERROR_BLOCKS = (0, 14, 29)

Array = NDArray[np.float32]


def measure(model: ReferenceModel) -> dict[str, Any]:
    """Top token after each block, the first block with the final answer on top, SwiGLU's error."""
    ids = model.tokenize(PROMPT)
    tops = _lens(model, ids)
    final = tops[-1]
    first = next(block for block in range(len(tops)) if set(tops[block:]) == {final})
    return {
        "lens_prompt": PROMPT,
        "lens_lines": [f"after block {block:>2}   {tops[block]!r}" for block in SHOWN_BLOCKS],
        "lens_answer": final.strip(),
        "lens_first_layer": first,
        "swiglu_error_percent": ceil(100 * max(_swiglu_error(model, ids, block) for block in ERROR_BLOCKS)),
    }


def _lens(model: ReferenceModel, ids: list[int]) -> list[str]:
    """The most likely next token if block 0, 1, … were the last one."""
    blocks = model.dims.n_layer
    seen = model.capture(ids, [f"l_out-{block}" for block in range(blocks)])
    table, gain = model.weight("token_embd.weight"), model.weight("output_norm.weight")
    rows = np.stack([_rows(seen[f"l_out-{block}"])[-1] for block in range(blocks)])
    scaled = rows / np.sqrt((rows**2).mean(axis=-1, keepdims=True) + model.dims.rms_eps) * gain
    return [model.piece(int(best)).decode("utf-8", "replace") for best in (scaled @ table.T).argmax(axis=-1)]


def _swiglu_error(model: ReferenceModel, ids: list[int], block: int) -> float:
    """‖float32 − llama.cpp‖ / ‖llama.cpp‖ of one block's SwiGLU over the prompt."""
    seen = model.capture(ids, [f"ffn_norm-{block}", f"ffn_out-{block}"])
    x, expected = _rows(seen[f"ffn_norm-{block}"]), _rows(seen[f"ffn_out-{block}"])
    gate, up, down = (model.weight(f"blk.{block}.ffn_{name}.weight") for name in ("gate", "up", "down"))
    wide = x @ gate.T
    got = (wide / (1 + np.exp(-wide)) * (x @ up.T)) @ down.T
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def _rows(seen: list[Array]) -> Array:
    """The captured tensor as [T, width]."""
    return seen[0].reshape(-1, seen[0].shape[-1])
