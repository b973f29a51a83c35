"""Which stored sequence shares the longest prefix with a given one, without looking at them all.

Sequences hang in a tree of full blocks, found by their chained hashes (`prefix_cache.extend_chain`). A lookup
walks down one block at a time while the next hash is known: it costs what hashing the query costs, however
many sequences are stored. Each node keeps the next block of the sequences that pass through it in sorted
order; among sorted token runs the neighbours of the place where a run would stand share the most with it,
so the tokens after the last common full block are found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from tutor.serving.errors import ensure
from tutor.serving.prefix_cache import Link, extend_chain, root_hash

Run = tuple[int, ...]
MAX_TIES = 32


class _Node:
    """A full block. `passing`: (tokens of the next block, key) of each sequence through here, sorted."""

    __slots__ = ("parent", "passing", "tokens")

    def __init__(self, parent: int, tokens: Run) -> None:
        self.parent = parent
        self.tokens = tokens
        self.passing: list[tuple[Run, int]] = []


class PrefixIndex:
    """Keys of stored sequences by their tokens and salt."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._nodes: dict[int, _Node] = {}
        self._stored: dict[int, tuple[Run, str]] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def keys(self) -> set[int]:
        return set(self._stored)

    def add(self, key: int, token_ids: Run, salt: str = "") -> None:
        """Index a sequence under a key that is not in use."""
        ensure(key not in self._stored, f"key {key} is indexed twice")
        self._stored[key] = (token_ids, salt)
        for block_hash, parent, tokens, following in self._path(token_ids, salt):
            node = self._nodes.setdefault(block_hash, _Node(parent, tokens))
            if (node.parent, node.tokens) != (parent, tokens):
                return  # two prefixes with one hash: the sequence is found by its shorter prefixes only
            insort(node.passing, (following, key))

    def remove(self, key: int) -> None:
        token_ids, salt = self._stored.pop(key)
        for block_hash, parent, tokens, following in self._path(token_ids, salt):
            node = self._nodes.get(block_hash)
            if node is None or (node.parent, node.tokens) != (parent, tokens):
                return
            place = bisect_left(node.passing, (following, key))
            if node.passing[place : place + 1] != [(following, key)]:
                return
            del node.passing[place]
            if not node.passing:
                del self._nodes[block_hash]

    def prefixes_of(self, token_ids: Run, salt: str = "") -> list[int]:
        """Keys of the sequences that are a prefix of `token_ids`, or all of it; shortest first."""
        keys: list[int] = []
        for block_hash, parent, tokens, following in self._path(token_ids, salt):
            node = self._nodes.get(block_hash)
            if node is None or (node.parent, node.tokens) != (parent, tokens):
                break
            # A run that is shorter than a block ends its sequence.
            for length in range(min(len(following), self._size - 1) + 1):
                place = bisect_left(node.passing, (following[:length], -1))
                for run, key in node.passing[place:]:
                    if run != following[:length]:
                        break
                    keys.append(key)
        return keys

    def find(self, token_ids: Sequence[int], salt: str = "") -> tuple[int, list[int]]:
        """Length of the longest common prefix with any sequence, and keys of up to MAX_TIES that have it."""
        deepest: _Node | None = None
        depth = 0
        rest: Run = ()
        for i, (block_hash, parent, tokens, following) in enumerate(self._path(tuple(token_ids), salt)):
            node = self._nodes.get(block_hash)
            if node is None or (node.parent, node.tokens) != (parent, tokens):
                break
            deepest, depth, rest = node, i, following
        if deepest is None:
            return 0, []
        more, keys = _closest(deepest.passing, rest)
        length = depth * self._size + more
        return (length, keys) if length else (0, [])

    def _path(self, token_ids: Run, salt: str) -> Iterator[tuple[int, int, Run, Run]]:
        """(hash, parent's hash, tokens, tokens of the next block) of the root and of every full block."""
        links: list[Link] = [(root_hash(salt), ())]
        blocks: list[Link] = []
        extend_chain(blocks, token_ids, self._size, salt)
        links += blocks
        parent = 0
        for i, (block_hash, tokens) in enumerate(links):
            yield block_hash, parent, tokens, token_ids[i * self._size : (i + 1) * self._size]
            parent = block_hash

    def check_integrity(self) -> None:
        seen = 0
        for node in self._nodes.values():
            ensure(bool(node.passing), "a block of the prefix tree belongs to nobody")
            ensure(node.passing == sorted(set(node.passing)), "a block's sequences are not in order")
            ensure(all(key in self._stored for _, key in node.passing), "a removed sequence is still found")
            seen += len(node.passing)
        paths = sum(1 + len(tokens) // self._size for tokens, _ in self._stored.values())
        ensure(seen == paths, f"sequences have {paths} places in the prefix tree, {seen} are there")


def _closest(passing: list[tuple[Run, int]], rest: Run) -> tuple[int, list[int]]:
    """The most tokens that `rest` shares with one of the sorted runs, and keys of those that share them."""
    place = bisect_left(passing, (rest, -1))
    near = passing[max(0, place - 1) : place + 1]
    most = max(_common(run, rest) for run, _ in near)
    first = bisect_left(passing, (rest[:most], -1))
    keys = []
    for run, key in passing[first : first + MAX_TIES]:
        if run[:most] != rest[:most]:
            break
        keys.append(key)
    return most, keys


def _common(left: Run, right: Run) -> int:
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right))
