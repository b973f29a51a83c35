"""A cursor over a store: live is a cursor at the tail, replay a cursor at a speed, rewind a refold."""

from __future__ import annotations

import copy

from tutor.trace.state import LabState
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SNAPSHOT_EVERY = 32


class Playback:
    """Folds the store up to a step.

    `step` is the step shown; going back refolds from the nearest snapshot. `tick(dt)` moves a playing
    replay by `dt * steps_per_second * speed` steps. The store may grow while it is played.
    """

    def __init__(self, store: TraceStore, *, steps_per_second: float = 4.0, follow: bool = True) -> None:
        self.store = store
        self.speed = 1.0
        self.following = follow
        self.playing = follow
        self._rate = steps_per_second
        self._debt = 0.0
        self._state = LabState(store.header)
        self._snapshots: dict[int, tuple[int, LabState]] = {}
        self._cursor = 0
        self.step = 0
        self._view: LabView | None = None
        self.seek(store.last_step if follow else 0)

    @property
    def last_step(self) -> int:
        return self.store.last_step

    @property
    def at_end(self) -> bool:
        return self._cursor == len(self.store)

    @property
    def view(self) -> LabView:
        """The picture at the cursor; the same object until the cursor moves."""
        if self._view is None:
            self._view = self._state.view()
        return self._view

    def seek(self, step: int) -> None:
        """Show the end of `step` (clamped to what exists)."""
        step = max(0, min(step, self.last_step))
        if self.store.step_end(step) < self._cursor:
            self._rewind(step)
        for s in range(self.step, step + 1):
            self._fold_to(self.store.step_end(s))
            self.step = s
            if s % SNAPSHOT_EVERY == 0 and s < self.last_step and s not in self._snapshots:
                self._snapshots[s] = (self._cursor, copy.deepcopy(self._state))

    def _rewind(self, step: int) -> None:
        base = max((s for s in self._snapshots if s <= step), default=None)
        if base is None:
            self._cursor, self._state, self.step = 0, LabState(self.store.header), 0
        else:
            self._cursor, state = self._snapshots[base]
            self._state, self.step = copy.deepcopy(state), base
        self._view = None

    def _fold_to(self, end: int) -> None:
        if end > self._cursor:
            self._view = None
        while self._cursor < end:
            self._state.apply(self.store[self._cursor])
            self._cursor += 1

    def follow(self) -> None:
        """Stay at the newest record from now on."""
        self.following = self.playing = True
        self.seek(self.last_step)

    def pause(self) -> None:
        self.following = self.playing = False

    def play(self) -> None:
        """Play on from here; a replay that stands at its end starts again."""
        if self.at_end and not self.following:
            self.seek(0)
        self.playing = True
        self._debt = 0.0

    def step_forward(self) -> None:
        self.pause()
        self.seek(self.step + 1)

    def step_back(self) -> None:
        self.pause()
        self.seek(self.step - 1)

    def faster(self) -> None:
        self.speed = next((s for s in SPEEDS if s > self.speed), SPEEDS[-1])

    def slower(self) -> None:
        self.speed = next((s for s in reversed(SPEEDS) if s < self.speed), SPEEDS[0])

    def tick(self, dt: float) -> bool:
        """Advance by `dt` seconds of the viewer's time. True when the picture changed."""
        before = self._cursor
        if self.following:
            self.seek(self.last_step)
        elif self.playing:
            self._debt += dt * self._rate * self.speed
            whole = int(self._debt)
            self._debt -= whole
            if whole:
                self.seek(self.step + whole)
            if self.at_end:
                self.playing = False
        return self._cursor != before
