"""The fold that counts what the engine's mechanisms did since the trace began: what each was worth."""

from __future__ import annotations

from collections import deque
from functools import singledispatchmethod

import msgspec

from tutor.trace import events as ev

MOVES = 6


class TierView(msgspec.Struct, frozen=True):
    """What lies in one tier outside the cache; `num_bytes` as stored."""

    name: str
    num_sequences: int
    num_bytes: int


class MechanismsView(msgspec.Struct, frozen=True):
    """Sums since the trace began. Counts are tokens unless the name says otherwise.

    num_rows: tokens that forward passes computed, wrong drafts included. num_lost: KV that preemption threw
    away, to be computed again; num_swapped: KV that it saved in host memory instead. positions_used and
    positions_held add up, over the steps, the cache positions that held a token and those that requests kept
    from others. moves: the newest moves between tiers, with their reasons.
    """

    num_steps: int = 0
    seconds: float = 0.0
    num_rows: int = 0
    recomputes: int = 0
    num_lost: int = 0
    swaps_out: int = 0
    swaps_in: int = 0
    num_swapped: int = 0
    num_copied: int = 0
    draft_passes: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    saves: int = 0
    loads: int = 0
    num_loaded: int = 0
    loaded_bytes: int = 0
    tiers: tuple[TierView, ...] = ()
    moves: tuple[str, ...] = ()
    positions_used: int = 0
    positions_held: int = 0

    @property
    def num_rejected(self) -> int:
        return self.num_drafted - self.num_accepted

    @property
    def acceptance_rate(self) -> float:
        """accepted / drafted; 0 without drafts."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def mean_use(self) -> float:
        """Share of the held positions that held a token, over all steps; 1 when nothing was held."""
        return self.positions_used / self.positions_held if self.positions_held else 1.0


class MechanismsState:
    """Apply events in order; `view()` gives the sums."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}
        self._seconds = 0.0
        self._swapped: set[str] = set()  # requests whose KV lies in host memory
        self._tiers: dict[str, dict[int, int]] = {}  # name -> key -> bytes
        self._moves: deque[str] = deque(maxlen=MOVES)

    def apply(self, event: ev.AnyEvent) -> None:
        self._on(event)

    def note_use(self, used: int, held: int) -> None:
        """Positions of the pool in this step."""
        self._add(positions_used=used, positions_held=held)

    def _add(self, **counts: int) -> None:
        for name, count in counts.items():
            self._sums[name] = self._sums.get(name, 0) + count

    @singledispatchmethod
    def _on(self, event: object) -> None:
        """All other events leave the sums as they are."""

    @_on.register
    def _(self, event: ev.StepExecuted) -> None:
        self._add(num_steps=1, num_rows=event.num_tokens)
        self._seconds += event.duration

    @_on.register
    def _(self, event: ev.RequestPreempted) -> None:
        if event.way == "swap":
            self._swapped.add(event.request_id)
            self._add(swaps_out=1, num_swapped=event.num_computed_tokens)
        else:
            self._add(recomputes=1, num_lost=event.num_computed_tokens)

    @_on.register
    def _(self, event: ev.RequestScheduled) -> None:
        if event.request_id in self._swapped:
            self._swapped.remove(event.request_id)
            self._add(swaps_in=1)

    @_on.register
    def _(self, event: ev.RequestFinished) -> None:
        self._swapped.discard(event.request_id)

    @_on.register
    def _(self, event: ev.BlockCopied) -> None:
        self._add(num_copied=event.num_tokens)

    @_on.register
    def _(self, event: ev.TokensVerified) -> None:
        accepted = len(event.accepted)
        self._add(draft_passes=1, num_drafted=accepted + len(event.rejected), num_accepted=accepted)

    @_on.register
    def _(self, event: ev.SequenceMoved) -> None:
        if event.from_tier:
            self._tiers.get(event.from_tier, {}).pop(event.key, None)
        else:
            self._add(saves=1)
        if event.to_tier:
            self._tiers.setdefault(event.to_tier, {})[event.key] = event.num_bytes
        way = f"{event.from_tier or 'cache'} → {event.to_tier or 'gone'}"
        self._moves.append(f"{event.num_tokens} tokens {way}: {event.reason}")

    @_on.register
    def _(self, event: ev.SequenceLoaded) -> None:
        self._add(loads=1, num_loaded=event.num_tokens, loaded_bytes=event.num_bytes)

    def view(self) -> MechanismsView:
        tiers = tuple(TierView(name, len(held), sum(held.values())) for name, held in self._tiers.items())
        return msgspec.structs.replace(
            MechanismsView(), **self._sums, seconds=self._seconds, tiers=tiers, moves=tuple(self._moves)
        )
