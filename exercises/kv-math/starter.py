"""Exercise: how many bytes a KV cache takes, and how many users a GPU can hold."""

from __future__ import annotations


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
    """Bytes of the KV buffer that llama.cpp allocates.

    n_ctx: tokens asked for. llama.cpp rounds it up to a multiple of 256 cells first.
    unified: True = all n_seq sequences share these cells. False = the cells are divided by n_seq
        (rounded down), and each sequence's share is rounded up to a multiple of 256 again.
    type_k, type_v: storage of K and of V, each one of "f32", "f16", "bf16" (4, 2, 2 bytes a number),
        "q8_0", "q4_1", "q4_0" (34, 20, 18 bytes for a block of 32 numbers).
        type_v None = the model stores no V (MLA).
    """
    raise NotImplementedError("kv_bytes: cells × layers × (bytes of one K row + bytes of one V row)")


def max_seqs(
    hbm: float,
    util: float,
    weights: float,
    overhead: float,
    kv_per_tok: int,
    ctx: int,
) -> int:
    """How many sequences of ctx tokens fit at the same time; 0 if none does.

    hbm, weights, overhead: bytes. util: the share of hbm that the server may use (0 to 1).
    kv_per_tok: bytes that one token takes in the KV cache. ctx: tokens of one sequence.
    """
    raise NotImplementedError("max_seqs: what is left of the memory, in whole sequences")
