"""Carries out moves between tiers: makes room, encodes once, evicts, and tells what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tutor.serving.errors import ensure
from tutor.serving.prefix_index import PrefixIndex
from tutor.serving.racks import Racks
from tutor.serving.shelves import Shelf
from tutor.serving.tier_policy import CostModel, Entry, Policy, value
from tutor.serving.tier_types import PLAIN, Codec, CodecError, OnMove, SequenceMoved, TierConfig


class Keeper:
    """The entries, their prefix index and the racks they lie on; `now` counts admissions and fetches."""

    def __init__(
        self,
        tiers: Sequence[TierConfig],
        costs: CostModel,
        codecs: Mapping[str, Codec],
        shelves: Mapping[str, Shelf],
        *,
        policy: Policy,
        block_size: int,
        on_move: OnMove | None,
    ) -> None:
        self.tiers = tiers
        self.costs = costs
        self.codecs = codecs
        self.policy = policy
        self.racks = Racks(tiers, shelves)
        self.entries: dict[int, Entry] = {}
        self.index = PrefixIndex(block_size)
        self.counts: Counter[str] = Counter()
        self.now = 0
        self._on_move = on_move

    def make_room(self, level: int, num_bytes: int) -> None:
        """Only called when it can succeed: `Racks.fits` counts pinned entries as immovable."""
        name = self.tiers[level].name
        while self.racks.lacks(level, num_bytes):
            victim = min(
                self.racks.movable(level), key=lambda e: value(e, self.policy, name, self.costs, self.now)
            )
            self.demote(victim, f"{name} needs room and it is worth least ({self.policy})")

    def demote(self, entry: Entry, reason: str) -> bool:
        level = entry.tier + 1
        if level == len(self.tiers):
            self.forget(entry, reason)
            return False
        data = self.racks.read(entry)
        if data is None:
            self.lose(entry)
            return False
        before = entry.encoding, entry.lossy
        data = self.encode(entry, data, level)
        if not self.racks.fits(level, len(data)):
            why = f"{reason}; {self.tiers[level].name} cannot hold it"
        elif not self.pays(entry, len(data), level):
            why = f"{reason}; recomputing is faster than loading from {self.tiers[level].name}"
        else:
            return self.move(entry, data, level, reason)
        entry.encoding, entry.lossy = before
        self.forget(entry, why)
        return False

    def move(self, entry: Entry, data: bytes, level: int, reason: str) -> bool:
        source = self.name(entry)
        verb = "promoted" if level < entry.tier else "demoted"
        self.racks.remove(entry)
        self.make_room(level, len(data))
        entry.tier = level
        if not self.racks.put(entry, data):
            self._end(entry, source, f"{self.tiers[level].name} could not be written")
            return False
        self.counts[verb] += 1
        self.tell(entry, source, self.name(entry), reason)
        return True

    def is_lossy(self, level: int) -> bool:
        codec = self.tiers[level].codec
        return codec != PLAIN and self.codecs[codec].lossy

    def encode(self, entry: Entry, data: bytes, level: int) -> bytes:
        """The bytes that a tier keeps. Encoded ones stay as they are: a second pass would lose more."""
        name = self.tiers[level].codec
        if name == PLAIN or entry.encoding != PLAIN:
            return data
        codec = self.codecs[name]
        try:
            encoded = codec.encode(data)
        except CodecError:
            self.counts["not encoded"] += 1
            return data
        self.counts["encoded"] += 1
        entry.encoding = name
        entry.lossy = entry.lossy or codec.lossy
        return encoded

    def pays(self, entry: Entry, num_bytes: int, level: int) -> bool:
        """The cost-aware policy keeps nothing where recomputing it is faster than loading it."""
        if self.policy != "cost":
            return True
        load = self.costs.load_seconds(num_bytes, self.tiers[level].name)
        return load < self.costs.prefill_seconds(entry.num_tokens)

    def lose(self, entry: Entry) -> None:
        self.counts["damaged"] += 1
        self.forget(entry, "its bytes are missing or damaged")

    def forget(self, entry: Entry, reason: str) -> None:
        self.racks.remove(entry)
        self._end(entry, self.name(entry), reason)

    def _end(self, entry: Entry, source: str, reason: str) -> None:
        del self.entries[entry.key]
        self.index.remove(entry.key)
        self.counts["evicted"] += 1
        self.tell(entry, source, "", reason)

    def name(self, entry: Entry) -> str:
        return self.tiers[entry.tier].name

    def tell(self, entry: Entry, source: str, target: str, reason: str) -> None:
        if self._on_move:
            size = entry.num_bytes
            self._on_move(
                SequenceMoved(entry.key, source, target, entry.num_tokens, size, entry.encoding, reason)
            )

    def check_integrity(self) -> None:
        """Raises IntegrityError when ledgers, shelves and index disagree."""
        self.racks.check_integrity(self.entries)
        self.index.check_integrity()
        ensure(self.index.keys() == self.entries.keys(), "the prefix index and the entries differ")
        for key, entry in self.entries.items():
            ensure(entry.key == key, f"entry {entry.key} is filed under {key}")
            ensure(entry.last_used <= self.now, f"entry {key} was used in the future")
            known = entry.encoding == PLAIN or entry.encoding in self.codecs
            ensure(known, f"entry {key} cannot be decoded: {entry.encoding}")
