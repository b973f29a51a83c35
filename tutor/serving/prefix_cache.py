"""Block hashes: a full block is known by its parent's hash and its own tokens, so a hash names a prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

ROOT = ""


def block_hash(parent: str, token_ids: Sequence[int]) -> str:
    """Hash of a full block: sha256 over the parent's hash and the block's tokens, 16 hex digits.

    Two blocks with the same tokens behind different prefixes differ, since their K and V differ:
    keys carry positions, and values above the first layer have seen the whole prefix.
    The chaining follows vLLM's prefix caching design document.
    """
    digest = hashlib.sha256(parent.encode())
    digest.update(b"".join(token.to_bytes(4, "little") for token in token_ids))
    return digest.hexdigest()[:16]


def chain(token_ids: Sequence[int], block_size: int) -> list[str]:
    """Hashes of all full blocks of a token sequence, in order."""
    hashes: list[str] = []
    parent = ROOT
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = block_hash(parent, token_ids[start : start + block_size])
        hashes.append(parent)
    return hashes
