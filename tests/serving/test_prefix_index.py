"""The longest common prefix with any stored sequence, against a scan over all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.serving import prefix_index
from tutor.serving.errors import IntegrityError
from tutor.serving.prefix_index import MAX_TIES, PrefixIndex

sequences = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    return next((i for i, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
                min(len(left), len(right)))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    block_size=st.integers(1, 5),
    stored=st.lists(st.tuples(sequences, st.sampled_from(["", "a"])), max_size=12),
    removed=st.sets(st.integers(0, 11)),
    queries=st.lists(st.tuples(sequences, st.sampled_from(["", "a", "b"])), min_size=1, max_size=6),
)
def test_equals_a_scan_over_all(block_size, stored, removed, queries) -> None:  # type: ignore[no-untyped-def]
    index = PrefixIndex(block_size)
    for key, (tokens, salt) in enumerate(stored):
        index.add(key, tokens, salt)
        index.check_integrity()
    for key in removed & index.keys():
        index.remove(key)
        index.check_integrity()
    kept = {key: entry for key, entry in enumerate(stored) if key not in removed}
    assert index.keys() == kept.keys()
    for query, salt in queries:
        shared = {key: common(query, tokens) for key, (tokens, own) in kept.items() if own == salt}
        longest = max(shared.values(), default=0)
        length, keys = index.find(query, salt)
        assert length == longest
        assert sorted(keys) == [key for key, value in shared.items() if value == longest > 0]
        inside = [
            key for key, (tokens, own) in kept.items() if own == salt and query[: len(tokens)] == tokens
        ]
        assert sorted(index.prefixes_of(query, salt)) == inside
    for key in kept:
        index.remove(key)
    assert len(index) == 0 and not index._nodes


def test_a_lookup_compares_two_neighbours_among_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    index = PrefixIndex(16)
    system = tuple(range(40))
    for key in range(3000):
        index.add(key, (*system, key, 7, 7, 7))
    calls = 0

    def counted(left: tuple[int, ...], right: tuple[int, ...]) -> int:
        nonlocal calls
        calls += 1
        return common(left, right)

    monkeypatch.setattr(prefix_index, "_common", counted)
    assert index.find((*system, 1234, 7, 8)) == (42, [1234])
    length, keys = index.find((*system, 9999))
    assert (length, len(set(keys))) == (40, MAX_TIES)
    assert calls <= 4


def test_two_prefixes_with_one_hash_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every block under the same hash, only true common prefixes are found, however short."""
    monkeypatch.setattr(
        prefix_index,
        "extend_chain",
        lambda links, ids, size, salt: links.extend(
            (5, tuple(ids[i : i + size])) for i in range(0, len(ids) - size + 1, size)
        ),
    )
    index = PrefixIndex(2)
    index.add(1, (1, 2, 3))
    index.add(2, (4, 5, 6))
    assert index.find((1, 2, 3)) == (3, [1])
    assert index.find((4, 5, 6)) == (2, [2])
    index.remove(1)
    index.remove(2)
    assert not index._nodes


def test_a_key_is_indexed_once() -> None:
    index = PrefixIndex(2)
    index.add(1, (1, 2))
    with pytest.raises(IntegrityError, match="indexed twice"):
        index.add(1, (3,))
