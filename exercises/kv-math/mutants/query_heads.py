# fails: llama.cpp's own buffers
# says: query heads; the cache holds
"""Exercise: how many bytes a KV cache takes, and how many users a GPU can hold."""

from __future__ import annotations

# storage type -> (numbers a block, bytes a block)
BLOCKS = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_1": (32, 20), "q4_0": (32, 18)}


def kv_bytes(
    layers: int,
    kv_heads: int,
    head_dim: int,
    n_ctx: int,
    n_seq: int = 1,
    type_k: str = "f16",
    type_v: str | None = "f16",
    unified: bool = True,
) -> int:
    """Bytes of the KV buffer that llama.cpp allocates."""
    cells = padded(n_ctx)
    if not unified:
        cells = padded(cells // n_seq) * n_seq
    row = 9 * head_dim
    per_cell = row_bytes(row, type_k)
    if type_v is not None:
        per_cell += row_bytes(row, type_v)
    return cells * layers * per_cell


def padded(cells: int) -> int:
    """Rounded up to a multiple of 256."""
    return (cells + 255) // 256 * 256


def row_bytes(numbers: int, kind: str) -> int:
    """Bytes that `numbers` numbers take in a storage type."""
    per_block, size = BLOCKS[kind]
    return numbers // per_block * size


def max_seqs(
    hbm: float,
    util: float,
    weights: float,
    overhead: float,
    kv_per_tok: int,
    ctx: int,
) -> int:
    """How many sequences of ctx tokens fit at the same time; 0 if none does."""
    left = hbm * util - weights - overhead
    return max(0, int(left // (kv_per_tok * ctx)))
