"""Notices an engine that hangs: it lives, but what it owes does not come.

Silence counts only while the engine owes something, and only as far as this process ran itself: when the
whole machine (or the server, by Ctrl-Z) was stopped for an hour, that hour does not count.
"""

from __future__ import annotations

import asyncio
import time

from tutor.endpoint import messages as msg
from tutor.endpoint.in_flight import InFlight

LOADING = 120.0  # seconds of silence that a start is allowed at least: a big file from a slow disk
LOOK = 1.0  # seconds between two looks, less for short limits


class Watchdog:
    """For one life of the engine. `limit`: seconds of silence that are allowed; 0 for any."""

    def __init__(self, limit: float, in_flight: InFlight) -> None:
        self._ready_limit = limit
        self._in_flight = in_flight
        self._is_ready = False
        self._silence = 0.0

    @property
    def limit(self) -> float:
        """Seconds; the start gets more."""
        return self._ready_limit if self._is_ready else max(self._ready_limit, LOADING)

    def heard(self, message: msg.Message) -> None:
        """A step, a loaded model and a carried out abort show that the engine's own thread works.

        Other messages come from the thread that reads commands. They show life where no step is owed.
        """
        self._is_ready = self._is_ready or isinstance(message, msg.Ready)
        if isinstance(message, msg.Stepped | msg.Ready | msg.Aborted) or not self._in_flight.owes_step:
            self._silence = 0.0

    async def silence(self) -> None:
        """Returns when the engine has been silent for too long; without a limit it never does."""
        if not self._ready_limit:
            await asyncio.Event().wait()
        pause = min(LOOK, self._ready_limit / 4)
        looked = time.monotonic()
        while self._silence < self.limit:
            await asyncio.sleep(pause)
            now = time.monotonic()
            owes = not self._is_ready or self._in_flight.owes_answer
            self._silence = self._silence + min(now - looked, 2 * pause) if owes else 0.0
            looked = now
