"""The KV buffers that llama.cpp really allocates, parsed from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tutor.llama.reference import ReferenceModel

ASK = 1000
SEQUENCES = 3
TEXT = "a b c d"


def measure(model: ReferenceModel) -> dict[str, int | float | str | list[int]]:
    """Cells and bytes for a context of 1,000 tokens, in one pool and split into 3 sequences."""
    facts: dict[str, int | float | str | list[int]] = {"ask": ASK}
    facts["cells"], facts["f16_bytes"] = model.kv_buffer_bytes(ASK)
    cells, size = model.kv_buffer_bytes(ASK, n_seq=SEQUENCES, unified=False)
    facts["split_seqs"] = SEQUENCES
    facts["split_cells"] = cells
    facts["split_cells_each"] = cells // SEQUENCES
    facts["split_bytes"] = size
    facts["state_token_bytes"] = _state_token_bytes(model)
    return facts


def _state_token_bytes(model: ReferenceModel) -> int:
    """What one token more adds to a saved sequence, in bytes (K and V in bf16, 2 bytes as f16)."""
    ids = model.tokenize(TEXT)
    with model.session(256) as session:
        sizes = []
        for position, token in enumerate(ids):
            session.decode([token], [position], [0], [False])
            sizes.append(len(session.save(0)))
    return sizes[-1] - sizes[-2]
