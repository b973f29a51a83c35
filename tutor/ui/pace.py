"""How often a lab may repaint: less often while the terminal does not keep up.

Over a slow link output waits: first in the terminal's buffer, then in the driver's queue, and at last the
event loop itself waits and ticks come late. Both are signs to repaint less often.
"""

from __future__ import annotations

import math

SLOWEST = 1.0  # seconds from one repaint to the next, at most, unless the terminal takes nothing at all
LATE = 2.0  # a tick is late when it comes after this many intervals
LATE_IN_A_ROW = 2  # one late repaint alone may be a resize or a suspended terminal
ON_TIME_IN_A_ROW = 8  # slow to recover, so that a link that is just too slow does not swing


class Pace:
    """Ticks come every `interval` seconds; `period` is the time between two repaints, in seconds.

    Call `tick` at every tick and `painted` when that tick repainted something. A repaint is late when a tick
    after it was, or when its output still waits once the next one is due. Late repaints double the period
    up to SLOWEST, those on time halve it down to `interval`.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.period = interval
        self._last_tick = -math.inf
        self._last_paint = -math.inf
        self._painted = False  # and not judged yet
        self._stalled = False
        self._late = 0
        self._on_time = 0

    def tick(self, now: float, ready: bool = True) -> bool:
        """True when a repaint is due and the terminal can take it.

        now: seconds of a clock that never goes back; ready: the terminal has taken all output so far.
        """
        self._stalled |= now - self._last_tick > LATE * self.interval
        self._last_tick = now
        # ticks jitter: one that comes a little early still counts as a full period
        due = now - self._last_paint >= self.period - self.interval / 2
        if due and self._painted:
            self._painted = False
            self._judge(late=self._stalled or not ready)
        return due and ready

    def painted(self) -> None:
        """The newest tick has repainted something; the next ones tell how long that took."""
        self._last_paint = self._last_tick
        self._painted = True
        self._stalled = False

    def _judge(self, *, late: bool) -> None:
        self._late = self._late + 1 if late else 0
        self._on_time = 0 if late else self._on_time + 1
        if self._late == LATE_IN_A_ROW:
            self.period = max(self.interval, min(2 * self.period, SLOWEST))
            self._late = 0
        elif self._on_time == ON_TIME_IN_A_ROW:
            self.period = max(self.interval, self.period / 2)
            self._on_time = 0
