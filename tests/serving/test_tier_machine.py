"""Random operations on a store with a memory and a disk tier, against a model that keeps everything.

After every one: ledgers, shelves and index agree; no tier is over its capacity; lookups equal a scan over all
entries; what can be fetched is the original, or the original after exactly one pass through the codec.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tutor.serving.shelves import DiskShelf
from tutor.serving.tier_policy import Entry, LinearCosts, Link
from tutor.serving.tier_types import EntryInUse, SequenceMoved, TierConfig
from tutor.serving.tiers import TierStore

TIERS = ("", "warm", "cold")  # "" is outside, on both ends
COSTS = LinearCosts({"warm": Link(0.1, 1000), "cold": Link(2.0, 100)}, seconds_per_token=0.4)
tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)
salts = st.sampled_from(["", "", "tenant"])
sizes = st.integers(1, 120)


class XorCodec:
    """Halves the bytes and changes each, so that a second pass, or a missing one, shows."""

    name = "xor"
    lossy = True

    def encode(self, blob: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in blob[::2])

    def decode(self, data: bytes) -> bytes:
        return b"".join(bytes([byte ^ 0x5A]) * 2 for byte in data)


CODEC = XorCodec()


class Tiers(RuleBasedStateMachine):
    @initialize(
        warm=st.integers(0, 300),
        cold=st.integers(0, 300),
        codecs=st.tuples(*[st.sampled_from(["none", "xor"])] * 2),
        policy=st.sampled_from(["lru", "lfu", "cost"]),
        block_size=st.sampled_from([1, 2, 4, 16]),
    )
    def start(self, warm: int, cold: int, codecs: tuple[str, str], policy: str, block_size: int) -> None:
        self.parent = Path(tempfile.mkdtemp())
        self.shelf = DiskShelf(self.parent)
        self.store = TierStore(
            [TierConfig("warm", warm, codecs[0]), TierConfig("cold", cold, codecs[1])],
            COSTS,
            codecs={"xor": CODEC},
            shelves={"cold": self.shelf},
            policy=policy,  # type: ignore[arg-type]
            block_size=block_size,
            on_move=self.moved,
        )
        self.saved: dict[int, bytes] = {}
        self.tier: dict[int, str] = {}
        self.size: dict[int, int] = {}
        self.pins: dict[int, int] = {}
        self.damaged: set[int] = set()

    def moved(self, event: SequenceMoved) -> None:
        assert self.tier.get(event.key, "") == event.from_tier
        down = not event.to_tier or TIERS.index(event.to_tier) > TIERS.index(event.from_tier) > 0
        if down and self.pins.get(event.key):
            assert event.key in self.damaged, f"a pinned entry moved down: {event}"
        if event.to_tier:
            self.tier[event.key], self.size[event.key] = event.to_tier, event.num_bytes
        else:
            assert self.size.get(event.key) == event.num_bytes
            del self.tier[event.key], self.size[event.key]
        assert event.reason

    def pick(self, number: int) -> Entry:
        entries = self.store.entries()
        return entries[number % len(entries)]

    def stored(self) -> bool:
        return len(self.store) > 0

    @rule(tokens=tokens, salt=salts, size=sizes, fill=st.integers(0, 255), lossy=st.booleans())
    def admit(self, tokens: list[int], salt: str, size: int, fill: int, lossy: bool) -> None:
        before = {entry.key for entry in self.store.entries()}
        blob = bytes((fill + i) % 256 for i in range(size))
        entry = self.store.admit(tokens, blob, salt, lossy=lossy)
        if entry is None:
            return
        assert entry.salt == salt and list(entry.token_ids[: len(tokens)]) == tokens
        if entry.key not in before:
            self.saved[entry.key] = blob
            assert entry.lossy or (not lossy and entry.encoding == "none")
        assert self.store.entry(entry.key) is entry

    @precondition(stored)
    @rule(number=st.integers(0, 99))
    def fetch(self, number: int) -> None:
        entry = self.pick(number)
        blob = self.store.fetch(entry.key)
        if entry.key in self.damaged:
            assert blob is None and entry.key not in self.tier
            return
        original = self.saved[entry.key]
        expected = CODEC.decode(CODEC.encode(original)) if entry.encoding == "xor" else original
        assert blob == expected

    @precondition(stored)
    @rule(number=st.integers(0, 99), direction=st.sampled_from(["promote", "demote", "evict"]))
    def move(self, number: int, direction: str) -> None:
        key = self.pick(number).key
        if direction != "promote" and self.pins.get(key):
            with pytest.raises(EntryInUse):
                getattr(self.store, direction)(key)
            return
        before = self.tier[key]
        done = getattr(self.store, direction)(key)
        if direction == "evict":
            assert key not in self.tier
        elif done:
            assert {before, self.tier[key]} == {"warm", "cold"}
        else:
            assert self.tier.get(key, before) == before

    @precondition(stored)
    @rule(number=st.integers(0, 99))
    def pin(self, number: int) -> None:
        key = self.pick(number).key
        self.store.pin(key)
        self.pins[key] = self.pins.get(key, 0) + 1

    @precondition(lambda self: bool(self.pins))
    @rule(number=st.integers(0, 99))
    def unpin(self, number: int) -> None:
        key = sorted(self.pins)[number % len(self.pins)]
        self.store.unpin(key)
        self.pins[key] -= 1
        if not self.pins[key]:
            del self.pins[key]

    @precondition(lambda self: self.shelf.keys() - self.damaged)
    @rule(number=st.integers(0, 99), how=st.sampled_from(["missing", "flipped", "cut"]))
    def damage(self, number: int, how: str) -> None:
        keys = sorted(self.shelf.keys() - self.damaged)
        key = keys[number % len(keys)]
        path = self.shelf.path(key)
        stored = bytearray(path.read_bytes())
        if how == "missing":
            path.unlink()
        else:
            stored[-1] ^= 0xFF
            path.write_bytes(stored[:-1] if how == "cut" else stored)
        self.damaged.add(key)

    @rule(query=tokens, salt=salts)
    def lookup(self, query: list[int], salt: str) -> None:
        hit = self.store.lookup(query, salt)
        shared = {
            entry.key: next(
                (i for i, pair in enumerate(zip(query, entry.token_ids, strict=False)) if pair[0] != pair[1]),
                min(len(query), len(entry.token_ids)),
            )
            for entry in self.store.entries()
            if entry.salt == salt
        }
        longest = max(shared.values(), default=0)
        if hit is None:
            assert longest == 0
            return
        assert hit.num_tokens == longest == shared[hit.key]
        assert (hit.tier, hit.num_bytes) == (self.tier[hit.key], self.size[hit.key])
        prices = [
            COSTS.load_seconds(self.size[key], self.tier[key])
            for key, value in shared.items()
            if value == longest
        ]
        choice = self.store.restore_or_recompute(hit)
        assert choice.load_seconds == min(prices)
        assert choice.restore == (choice.load_seconds < COSTS.prefill_seconds(longest))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.check_integrity()
        known = {e.key: (self.store.tiers[e.tier].name, e.num_bytes) for e in self.store.entries()}
        assert known == {key: (tier, self.size[key]) for key, tier in self.tier.items()}
        for tier in self.store.tiers:
            held = sum(size for key, size in self.size.items() if self.tier[key] == tier.name)
            assert self.store.used_bytes(tier.name) == held <= tier.capacity_bytes

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.ends_empty()
        finally:
            self.shelf.close()
            shutil.rmtree(self.parent)

    def ends_empty(self) -> None:
        for key, count in self.pins.items():
            for _ in range(count):
                self.store.unpin(key)
        self.pins.clear()
        self.store.clear()
        self.store.check_integrity()
        assert (self.store.used_bytes(), len(self.store), self.tier) == (0, 0, {})
        assert not list(self.shelf.folder.glob("*.kv"))


Tiers.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTiers = Tiers.TestCase
