"""Block hashes: a full block is known by its parent's hash and its own tokens, so a hash names a prefix.

Two blocks with the same tokens behind different prefixes differ, since their K and V differ: keys carry
positions, and everything above the first layer has seen the whole prefix. The chaining follows vLLM's prefix
caching design document. vLLM hashes with sha256 because it trusts the hash alone; here a match also compares
the tokens, block by block from the root, so Python's own 64-bit tuple hash suffices and costs a tenth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

ROOT = 0

Link = tuple[int, tuple[int, ...]]  # a full block: hash of the prefix that ends with it, its tokens


@lru_cache(maxsize=1024)
def root_hash(salt: str) -> int:
    """Where a chain starts: another salt (a tenant, say) gives another chain and no shared hits."""
    if not salt:
        return ROOT
    return int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8], "little")


def extend_chain(links: list[Link], token_ids: Sequence[int], block_size: int, salt: str = "") -> None:
    """Append (hash, tokens) of every full block of `token_ids` that `links` does not have yet."""
    parent = links[-1][0] if links else root_hash(salt)
    for start in range(len(links) * block_size, len(token_ids) - block_size + 1, block_size):
        tokens = tuple(token_ids[start : start + block_size])
        parent = hash((parent, tokens))
        links.append((parent, tokens))


def hex_hash(value: int) -> str:
    """How a hash is written in traces: 16 hex digits; the root is the empty string."""
    return f"{value & 0xFFFFFFFFFFFFFFFF:016x}" if value else ""
