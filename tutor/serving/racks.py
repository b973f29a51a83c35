"""The tiers' ledgers: which entry lies on which shelf, how many bytes are used, and what may be moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tutor.serving.errors import ensure
from tutor.serving.shelves import MemoryShelf, Shelf
from tutor.serving.tier_policy import Entry
from tutor.serving.tier_types import TierConfig


class Racks:
    """One shelf a tier, by level: 0 is the fastest. Sizes are bytes as a shelf really holds them.

    `pins`: how often an entry is in use, by key; such an entry stays where it is or goes up.
    """

    def __init__(self, tiers: Sequence[TierConfig], shelves: Mapping[str, Shelf]) -> None:
        self._tiers = tiers
        self._shelves: list[Shelf] = [shelves.get(tier.name) or MemoryShelf() for tier in tiers]
        self._held: list[dict[int, Entry]] = [{} for _ in tiers]
        self._pinned_bytes = [0] * len(tiers)
        self.used = [0] * len(tiers)
        self.pins: Counter[int] = Counter()

    def fits(self, level: int, num_bytes: int) -> bool:
        """Could the tier hold these bytes of data if all that may be moved were?"""
        free = self._tiers[level].capacity_bytes - self._pinned_bytes[level]
        return num_bytes + self._shelves[level].overhead <= free

    def lacks(self, level: int, num_bytes: int) -> bool:
        """Does something have to be moved before they fit?"""
        size = num_bytes + self._shelves[level].overhead
        return self.used[level] + size > self._tiers[level].capacity_bytes

    def movable(self, level: int) -> Iterator[Entry]:
        return (entry for key, entry in self._held[level].items() if not self.pins[key])

    def put(self, entry: Entry, data: bytes) -> bool:
        """Place the bytes in the entry's tier and set its size. False: the shelf has no room after all."""
        shelf = self._shelves[entry.tier]
        if not shelf.put(entry.key, data):
            return False
        entry.num_bytes = len(data) + shelf.overhead
        self._held[entry.tier][entry.key] = entry
        self._count(entry, 1)
        return True

    def read(self, entry: Entry) -> bytes | None:
        return self._shelves[entry.tier].get(entry.key)

    def remove(self, entry: Entry) -> None:
        self._shelves[entry.tier].drop(entry.key)
        del self._held[entry.tier][entry.key]
        self._count(entry, -1)

    def _count(self, entry: Entry, sign: int) -> None:
        self.used[entry.tier] += sign * entry.num_bytes
        if self.pins[entry.key]:
            self._pinned_bytes[entry.tier] += sign * entry.num_bytes

    def pin(self, entry: Entry) -> None:
        if not self.pins[entry.key]:
            self._pinned_bytes[entry.tier] += entry.num_bytes
        self.pins[entry.key] += 1

    def unpin(self, key: int, entry: Entry | None) -> None:
        """`entry` is None when it was lost while it was pinned."""
        self.pins[key] -= 1
        if self.pins[key]:
            return
        del self.pins[key]
        if entry is not None:
            self._pinned_bytes[entry.tier] -= entry.num_bytes

    def check_integrity(self, entries: Mapping[int, Entry]) -> None:
        """`entries`: all that there should be, by key."""
        filed = [key for held in self._held for key in held]
        ensure(len(filed) == len(set(filed)), "an entry lies in two tiers")
        ensure(set(filed) == set(entries), f"tiers hold {sorted(filed)}, known are {sorted(entries)}")
        ensure(all(count > 0 for count in self.pins.values()), "a pin count is not positive")
        for level, (tier, shelf, held) in enumerate(zip(self._tiers, self._shelves, self._held, strict=True)):
            shelf.check_integrity()
            used = sum(entry.num_bytes for entry in held.values())
            ensure(used == self.used[level], f"{tier.name} counts {self.used[level]} bytes, holds {used}")
            ensure(used == shelf.num_bytes, f"{tier.name} counts {used} bytes, its shelf {shelf.num_bytes}")
            ensure(used <= tier.capacity_bytes, f"{tier.name} holds {used} of {tier.capacity_bytes} bytes")
            ensure(shelf.keys() == held.keys(), f"{tier.name} and its shelf hold different entries")
            ensure(all(entry.tier == level for entry in held.values()), f"an entry is astray in {tier.name}")
            pinned = sum(entry.num_bytes for key, entry in held.items() if key in self.pins)
            ensure(pinned == self._pinned_bytes[level], f"{tier.name} miscounts its pinned bytes")
