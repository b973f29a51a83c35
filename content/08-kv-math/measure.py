"""The KV buffers that llama.cpp really allocates, parsed from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tutor.llama.reference import ReferenceModel

ASK = 1000
SEQUENCES = 3


def measure(model: ReferenceModel) -> dict[str, int | float | str | list[int]]:
    """Cells and bytes for a context of 1,000 tokens, in three types, and split into 3 sequences."""
    facts: dict[str, int | float | str | list[int]] = {"ask": ASK}
    for kind in ("f16", "q8_0", "q4_0"):
        cells, size = model.kv_buffer_bytes(ASK, type_k=kind, type_v=kind)
        facts["cells"] = cells
        facts[f"{kind}_bytes"] = size
    cells, size = model.kv_buffer_bytes(ASK, n_seq=SEQUENCES, unified=False)
    facts["split_seqs"] = SEQUENCES
    facts["split_cells"] = cells
    facts["split_cells_each"] = cells // SEQUENCES
    facts["split_bytes"] = size
    return facts
