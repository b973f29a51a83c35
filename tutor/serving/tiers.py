"""Tiers below the KV cache: saved sequences in host memory (warm) and on disk (cold), found by prefix.

The cache of the engine itself is the hot tier and not in here. A sequence that leaves it is admitted to the
first tier; when a tier is full, its least valuable entry is demoted to the next, and from the last it is
evicted. A tier may have a codec: what enters it is encoded once. Bytes that are encoded already are never
encoded again, whatever tier they move to, since each pass would lose more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tutor.serving.errors import ConfigError
from tutor.serving.shelves import Shelf
from tutor.serving.tier_keeper import Keeper
from tutor.serving.tier_policy import POLICIES, CostModel, Entry, Policy
from tutor.serving.tier_types import (
    PLAIN,
    Choice,
    Codec,
    CodecError,
    EntryInUse,
    Hit,
    OnMove,
    TierConfig,
    TierError,
)


class TierStore:
    """Saved sequences in tiers, the fastest first. `counts` says how often what happened, by name."""

    def __init__(
        self,
        tiers: Sequence[TierConfig],
        costs: CostModel,
        *,
        codecs: Mapping[str, Codec] | None = None,
        shelves: Mapping[str, Shelf] | None = None,
        policy: Policy = "lru",
        block_size: int = 16,
        on_move: OnMove | None = None,
    ) -> None:
        """Tiers without a shelf lie in memory. Raises ConfigError."""
        self.tiers = tuple(tiers)
        self.costs = costs
        self.policy = policy
        self._codecs = dict(codecs or {})
        _check(self.tiers, policy, self._codecs, shelves or {})
        self._keeper = Keeper(
            self.tiers,
            costs,
            self._codecs,
            shelves or {},
            policy=policy,
            block_size=block_size,
            on_move=on_move,
        )
        self.counts = self._keeper.counts
        self._next_key = 1

    # --- what is there --------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._keeper.entries)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, the oldest first; read only."""
        return tuple(self._keeper.entries.values())

    def entry(self, key: int) -> Entry:
        """Raises TierError for a key that is not stored."""
        try:
            return self._keeper.entries[key]
        except KeyError:
            raise TierError(f"There is no saved sequence {key}.") from None

    def used_bytes(self, tier: str | None = None) -> int:
        """Bytes as really stored, in one tier or in all."""
        used = zip(self.tiers, self._keeper.racks.used, strict=True)
        return sum(num_bytes for config, num_bytes in used if tier in (None, config.name))

    def lookup(self, token_ids: Sequence[int], salt: str = "") -> Hit | None:
        """The entry that shares the longest prefix; the one that loads fastest among equals. Changes nothing.

        An engine needs at least one token to compute: ask without the newest one.
        """
        num_tokens, keys = self._keeper.index.find(token_ids, salt)
        if not num_tokens:
            return None
        found = min((self._keeper.entries[key] for key in keys), key=self._preference)
        tier = self._keeper.name(found)
        return Hit(found.key, num_tokens, found.num_tokens, tier, found.num_bytes, found.lossy)

    def _preference(self, entry: Entry) -> tuple[float, bool, int]:
        seconds = self.costs.load_seconds(entry.num_bytes, self._keeper.name(entry))
        return seconds, entry.lossy, entry.key

    def restore_or_recompute(self, hit: Hit) -> Choice:
        """Loading brings the whole entry, recomputing the shared tokens only. A tie recomputes: exact."""
        load = self.costs.load_seconds(hit.num_bytes, hit.tier)
        prefill = self.costs.prefill_seconds(hit.num_tokens)
        return Choice(load < prefill, load, prefill)

    # --- in and out -----------------------------------------------------------------------------

    def admit(
        self, token_ids: Sequence[int], blob: bytes, salt: str = "", *, lossy: bool = False
    ) -> Entry | None:
        """Store a sequence; None when no tier can take it. `lossy`: part of it came from a lossy entry.

        A sequence that a stored one covers at the same fidelity is not stored again; one that covers stored
        ones replaces them. Raises TierError for nothing to store.
        """
        tokens = tuple(token_ids)
        if not tokens or not blob:
            raise TierError("A sequence without tokens or bytes cannot be saved.")
        self._keeper.now += 1
        for level in range(len(self.tiers)):
            entry = Entry(self._next_key, tokens, salt, level, len(blob), PLAIN, lossy, self._keeper.now)
            covering = self._covering(entry, lossy or self._keeper.is_lossy(level))
            if covering is not None:
                covering.touch(self._keeper.now)
                self._keeper.counts["covered"] += 1
                return covering
            data = self._keeper.encode(entry, blob, level)
            if self._keeper.racks.fits(level, len(data)) and self._keeper.pays(entry, len(data), level):
                return self._take_in(entry, data)
        self._keeper.counts["refused"] += 1
        return None

    def _covering(self, entry: Entry, lossy: bool) -> Entry | None:
        """A stored sequence that holds all of these tokens, not lossy unless the new one would be, too."""
        common, keys = self._keeper.index.find(entry.token_ids, entry.salt)
        found = (self._keeper.entries[key] for key in keys if common == entry.num_tokens)
        return next((old for old in found if lossy or not old.lossy), None)

    def _take_in(self, entry: Entry, data: bytes) -> Entry | None:
        for key in self._keeper.index.prefixes_of(entry.token_ids, entry.salt):
            old = self._keeper.entries[key]
            if not self._keeper.racks.pins[key] and (old.lossy or not entry.lossy):
                entry.uses = max(entry.uses, old.uses + 1)
                entry.heat = max(entry.heat, old.heat_at(self._keeper.now) + 1)
                self._keeper.forget(old, "a longer saved sequence covers it")
        self._next_key += 1
        self._keeper.make_room(entry.tier, len(data))
        if not self._keeper.racks.put(entry, data):
            self._keeper.counts["refused"] += 1
            return None
        self._keeper.entries[entry.key] = entry
        self._keeper.index.add(entry.key, entry.token_ids, entry.salt)
        self._keeper.counts["admitted"] += 1
        self._keeper.tell(entry, "", self._keeper.name(entry), "saved when it left the cache")
        return entry

    def fetch(self, key: int) -> bytes | None:
        """The blob as it was saved, or as close as its codec keeps it. Counts as a use.

        None when its bytes are lost or damaged: the entry is gone then, recompute. Raises TierError.
        """
        entry = self.entry(key)
        data = self._keeper.racks.read(entry)
        if data is not None and entry.encoding != PLAIN:
            try:
                data = self._codecs[entry.encoding].decode(data)
            except CodecError:
                data = None
        if data is None:
            self._keeper.lose(entry)
            return None
        self._keeper.now += 1
        entry.touch(self._keeper.now)
        self._keeper.counts[f"hit {self._keeper.name(entry)}"] += 1
        return data

    def pin(self, key: int) -> None:
        """Keep an entry from being demoted or evicted until as many `unpin`s. Raises TierError."""
        self._keeper.racks.pin(self.entry(key))

    def unpin(self, key: int) -> None:
        """Also for an entry whose bytes were lost meanwhile. Raises TierError when it was not pinned."""
        if not self._keeper.racks.pins[key]:
            raise TierError(f"Saved sequence {key} is not pinned.")
        self._keeper.racks.unpin(key, self._keeper.entries.get(key))

    @contextmanager
    def in_use(self, key: int) -> Iterator[Entry]:
        """Pinned inside the block."""
        self.pin(key)
        try:
            yield self.entry(key)
        finally:
            self.unpin(key)

    # --- moving ---------------------------------------------------------------------------------

    def promote(self, key: int) -> bool:
        """Move an entry one tier up, as it is encoded. False: it is in the first, too big or lost."""
        entry = self.entry(key)
        if entry.tier == 0:
            return False
        data = self._keeper.racks.read(entry)
        if data is None:
            self._keeper.lose(entry)
            return False
        if not self._keeper.racks.fits(entry.tier - 1, len(data)):
            return False
        return self._keeper.move(entry, data, entry.tier - 1, "it is used again")

    def demote(self, key: int) -> bool:
        """Move an entry one tier down. False: no tier below takes it, and it is gone. Raises EntryInUse."""
        return self._keeper.demote(self._unpinned(key), "asked for")

    def evict(self, key: int) -> None:
        """Forget an entry. Raises EntryInUse."""
        self._keeper.forget(self._unpinned(key), "asked for")

    def clear(self) -> None:
        """Forget all. Raises EntryInUse when one is pinned; nothing is changed then."""
        for entry in [self._unpinned(key) for key in self._keeper.entries]:
            self._keeper.forget(entry, "the store is emptied")

    def _unpinned(self, key: int) -> Entry:
        entry = self.entry(key)
        if self._keeper.racks.pins[key]:
            raise EntryInUse(f"Saved sequence {key} is in use.")
        return entry

    def check_integrity(self) -> None:
        """Raises IntegrityError when ledgers, shelves and index disagree."""
        self._keeper.check_integrity()


def _check(
    tiers: tuple[TierConfig, ...], policy: str, codecs: Mapping[str, Codec], shelves: Mapping[str, Shelf]
) -> None:
    names = [tier.name for tier in tiers]
    if not names or len(set(names)) != len(names) or "" in names:
        raise ConfigError("A store needs one tier or more, with names of their own.")
    if policy not in POLICIES:
        raise ConfigError(f"policy is one of {', '.join(POLICIES)}, not {policy!r}.")
    for tier in tiers:
        if tier.capacity_bytes < 0:
            raise ConfigError(f"{tier.name} cannot hold {tier.capacity_bytes} bytes.")
        if tier.codec != PLAIN and tier.codec not in codecs:
            raise ConfigError(f"{tier.name} asks for codec {tier.codec!r}, which was not given.")
    if unknown := set(shelves) - set(names):
        raise ConfigError(f"There is no tier for the shelves {sorted(unknown)}.")
