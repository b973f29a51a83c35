"""The tiers' decisions one by one: what is found, encoded, replaced, pinned, lost and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutor.serving.errors import ConfigError
from tutor.serving.shelves import DiskShelf, MemoryShelf
from tutor.serving.tier_policy import LinearCosts, Link
from tutor.serving.tier_types import CodecError, EntryInUse, SequenceMoved, TierConfig, TierError
from tutor.serving.tiers import TierStore

COSTS = LinearCosts({"warm": Link(0.0, 1e6), "cold": Link(0.01, 1e4)}, seconds_per_token=0.01)


class HalfCodec:
    """Keeps every second byte; counts its calls."""

    name = "half"
    lossy = True

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, blob: bytes) -> bytes:
        if blob.startswith(b"?"):
            raise CodecError("not a saved sequence")
        self.calls += 1
        return blob[::2]

    def decode(self, data: bytes) -> bytes:
        return b"".join(bytes([byte, byte]) for byte in data)


def make(warm: int = 100, cold: int = 100, **settings: object) -> TierStore:
    codecs = {"warm": "none", "cold": "none", **settings.pop("codecs", {})}  # type: ignore[dict-item]
    tiers = [TierConfig("warm", warm, codecs["warm"]), TierConfig("cold", cold, codecs["cold"])]
    settings.setdefault("block_size", 4)
    return TierStore(tiers, settings.pop("costs", COSTS), codecs={"half": HalfCodec()}, **settings)  # type: ignore[arg-type]


def where(store: TierStore) -> dict[int, str]:
    """First token of each entry (tests give each its own) and its tier."""
    store.check_integrity()
    return {entry.token_ids[0]: store.tiers[entry.tier].name for entry in store.entries()}


def put(store: TierStore, first: int, num_bytes: int = 40, num_tokens: int = 10) -> int:
    entry = store.admit([first] * num_tokens, bytes([first]) * num_bytes)
    assert entry is not None
    return entry.key


def test_the_longest_common_prefix_is_found_and_the_surplus_told() -> None:
    store = make()
    key = store.admit(range(10), b"a" * 30)
    assert key is not None
    hit = store.lookup([0, 1, 2, 3, 4, 5, 99])
    assert hit is not None
    assert (hit.key, hit.num_tokens, hit.stored_tokens, hit.surplus_tokens) == (key.key, 6, 10, 4)
    assert (hit.tier, hit.num_bytes, hit.lossy) == ("warm", 30, False)
    assert store.lookup([5, 1]) is None and store.lookup([]) is None
    assert store.lookup([0, 1, 2, 3], salt="tenant") is None
    assert store.fetch(hit.key) == b"a" * 30
    assert store.counts == {"admitted": 1, "hit warm": 1}


def test_among_equal_prefixes_the_one_that_loads_fastest_wins() -> None:
    store = make(warm=100)
    long = store.admit([1, 2, 3, 4, 5], b"a" * 60)
    short = store.admit([1, 2, 3, 9], b"a" * 40)
    assert long and short
    assert store.lookup([1, 2, 3, 7]).key == short.key  # type: ignore[union-attr]
    assert store.demote(short.key)
    assert store.lookup([1, 2, 3, 7]).key == long.key  # type: ignore[union-attr]


def test_a_blob_larger_than_a_tier_goes_below_or_nowhere() -> None:
    store = make(warm=100, cold=200)
    put(store, 1)
    big = store.admit([2] * 10, b"b" * 150)
    assert big is not None and where(store) == {1: "warm", 2: "cold"}
    assert not store.promote(big.key)
    assert store.admit([3] * 10, b"c" * 201) is None
    assert where(store) == {1: "warm", 2: "cold"}
    assert store.counts["refused"] == 1


def test_a_demotion_encodes_once_and_keeps_the_encoded_bytes() -> None:
    store = make(warm=100, cold=100, codecs={"cold": "half"})
    key = put(store, 1)
    assert store.demote(key) and store.used_bytes("cold") == 20
    entry = store.entry(key)
    assert (entry.encoding, entry.lossy, entry.num_bytes) == ("half", True, 20)
    for _ in range(3):
        assert store.promote(key) and store.used_bytes("warm") == 20
        assert store.demote(key) and store.used_bytes("cold") == 20
    assert store.fetch(key) == b"\x01" * 40
    assert store._codecs["half"].calls == 1  # type: ignore[attr-defined]
    assert store.counts["encoded"] == 1


def test_an_encoded_tier_holds_more_and_encodes_on_the_way_in() -> None:
    store = make(warm=100, codecs={"warm": "half", "cold": "half"})
    for first in range(1, 6):
        put(store, first)
    assert set(where(store).values()) == {"warm"} and store.used_bytes() == 100
    put(store, 6)
    assert store._codecs["half"].calls == 6  # type: ignore[attr-defined]
    assert list(where(store).values()).count("cold") == 1


def test_bytes_that_the_codec_cannot_encode_are_kept_as_they_are() -> None:
    store = make(codecs={"warm": "half"})
    entry = store.admit([1, 2], b"? not a saved sequence")
    assert entry is not None and not entry.lossy
    assert store.fetch(entry.key) == b"? not a saved sequence"
    assert store.counts["not encoded"] == 1


def test_covered_sequences_are_not_stored_twice() -> None:
    store = make()
    whole = store.admit([1, 2, 3, 4, 5, 6], b"a" * 50)
    assert store.admit([1, 2, 3], b"a" * 20) is whole
    assert store.admit([1, 2, 3, 4, 5, 6], b"a" * 50) is whole
    assert (len(store), store.counts["covered"], whole.uses) == (1, 2, 3)  # type: ignore[union-attr]
    assert store.admit([1, 2, 3], b"a" * 20, salt="other") is not whole


def test_a_longer_conversation_replaces_its_beginning_and_inherits_its_uses() -> None:
    store = make()
    short = store.admit([1, 2, 3], b"a" * 20)
    assert short is not None
    store.fetch(short.key)
    with store.in_use(short.key):
        assert store.admit([1, 2, 3, 4], b"a" * 30) is not None
        assert len(store) == 2, "a pinned entry was replaced"
    longest = store.admit([1, 2, 3, 4, 5, 6, 7, 8], b"a" * 50)
    assert store.entries() == (longest,) and longest is not None
    assert longest.uses == 3
    store.check_integrity()


def test_a_lossy_sequence_never_replaces_an_exact_one() -> None:
    store = make()
    exact = store.admit([1, 2, 3], b"a" * 20)
    store.admit([1, 2, 3, 4], b"b" * 20, lossy=True)
    assert len(store) == 2
    assert store.admit([1, 2, 3, 4], b"c" * 20, lossy=False) is not None
    assert [entry.lossy for entry in store.entries()] == [False], exact
    assert store.fetch(store.lookup([1, 2, 3, 4]).key) == b"c" * 20  # type: ignore[union-attr]


def test_pinned_entries_stay_until_they_are_released() -> None:
    store = make(warm=100, cold=100)
    first, second = put(store, 1), put(store, 2)
    with store.in_use(first), store.in_use(first):
        for refused in (store.demote, store.evict):
            with pytest.raises(EntryInUse, match=f"{first} is in use"):
                refused(first)
        with pytest.raises(EntryInUse):
            store.clear()
        assert len(store) == 2
        put(store, 3)
        assert where(store) == {1: "warm", 2: "cold", 3: "warm"}, "the older, but pinned one had to go"
        store.evict(store.lookup([3]).key)  # type: ignore[union-attr]
        assert store.promote(second) and where(store) == {1: "warm", 2: "warm"}
        store.pin(second)
        assert store.admit([4] * 10, b"d" * 30) is not None and where(store)[4] == "cold"
        store.unpin(second)
    assert store.demote(first)
    with pytest.raises(TierError, match="is not pinned"):
        store.unpin(first)
    with pytest.raises(TierError, match="no saved sequence 77"):
        store.pin(77)


def test_pinned_tiers_refuse_newcomers() -> None:
    store = make(warm=50, cold=0)
    with store.in_use(put(store, 1)):
        assert store.admit([2] * 4, b"b" * 20) is None
        assert where(store) == {1: "warm"}
    assert store.admit([2] * 4, b"b" * 20) is not None


def test_moves_are_told_in_order_with_their_reasons() -> None:
    told: list[SequenceMoved] = []
    store = make(warm=50, cold=50, codecs={"cold": "half"}, on_move=told.append)
    first = put(store, 1)
    second = put(store, 2)
    store.promote(first)
    store.clear()
    assert [(e.key, e.from_tier, e.to_tier, e.num_bytes, e.encoding) for e in told] == [
        (first, "", "warm", 40, "none"),
        (first, "warm", "cold", 20, "half"),
        (second, "", "warm", 40, "none"),
        (second, "warm", "cold", 20, "half"),
        (first, "cold", "warm", 20, "half"),
        (first, "warm", "", 20, "half"),
        (second, "cold", "", 20, "half"),
    ]
    assert told[1].reason == "warm needs room and it is worth least (lru)"
    assert (store.used_bytes(), len(store)) == (0, 0)
    store.check_integrity()


def test_what_is_evicted_on_its_way_down_is_told_as_it_was_stored() -> None:
    told: list[SequenceMoved] = []
    store = make(warm=50, cold=10, codecs={"cold": "half"}, on_move=told.append)
    first = put(store, 1)
    assert not store.demote(first)
    last = told[-1]
    assert (last.from_tier, last.to_tier, last.num_bytes, last.encoding) == ("warm", "", 40, "none")
    assert last.reason == "asked for; cold cannot hold it"


@pytest.mark.parametrize("loss", ["file", "flip", "codec"])
def test_lost_bytes_are_a_miss_and_the_entry_is_gone(tmp_path: Path, loss: str) -> None:
    with DiskShelf(tmp_path) as shelf:
        store = make(shelves={"cold": shelf}, codecs={"cold": "half"})
        key = put(store, 1)
        assert store.demote(key) and store.used_bytes("cold") == 20 + shelf.overhead
        if loss == "file":
            shelf.path(key).unlink()
        elif loss == "flip":
            shelf.path(key).write_bytes(shelf.path(key).read_bytes()[:-1] + b"\xff")
        else:
            store._codecs["half"].decode = _refuse  # type: ignore[attr-defined]
        with store.in_use(key):
            assert store.fetch(key) is None
        assert (len(store), store.used_bytes(), store.counts["damaged"]) == (0, 0, 1)
        assert not list(shelf.folder.glob("*.kv"))
        store.check_integrity()
        key = put(store, 2)
        store.demote(key)
        shelf.path(key).unlink()
        assert not store.promote(key) and len(store) == 0


def _refuse(data: bytes) -> bytes:
    raise CodecError("damaged")


class FullShelf(MemoryShelf):
    def put(self, key: int, data: bytes) -> bool:
        return False


def test_a_full_disk_loses_the_entry_and_nothing_else() -> None:
    store = make(warm=50, cold=100, shelves={"cold": FullShelf()})
    put(store, 1)
    put(store, 2)
    assert where(store) == {2: "warm"}
    assert store.admit([3] * 3, b"c" * 60) is None
    assert where(store) == {2: "warm"}


def test_settings_that_cannot_work() -> None:
    for tiers, settings, sentence in (
        ([], {}, "one tier or more"),
        ([TierConfig("a", 1), TierConfig("a", 1)], {}, "names of their own"),
        ([TierConfig("a", -1)], {}, "a cannot hold -1 bytes"),
        ([TierConfig("a", 1, "half")], {}, "codec 'half', which was not given"),
        ([TierConfig("a", 1)], {"policy": "best"}, "policy is one of lru, lfu, cost"),
        ([TierConfig("a", 1)], {"shelves": {"b": MemoryShelf()}}, r"no tier for the shelves \['b'\]"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            TierStore(tiers, COSTS, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rate above 0"):
        Link(0.0, 0.0)
    store = make()
    for tokens, blob in (([], b"x"), ([1], b"")):
        with pytest.raises(TierError, match="cannot be saved"):
            store.admit(tokens, blob)
