"""How often a lab may repaint: less often while the terminal does not keep up.

Output goes to the terminal through a bounded queue. Over a slow link the queue fills, writing then holds
up the event loop, and the tick that follows a repaint comes late. So late ticks say: repaint less often.
"""

from __future__ import annotations

import math

SLOWEST = 1.0  # seconds from one repaint to the next, at most
LATE = 2.0  # a tick is late when it comes after this many intervals
LATE_IN_A_ROW = 2  # one late tick alone may be a resize or a suspended terminal
ON_TIME_IN_A_ROW = 8  # slow to recover: at half the rate this also empties the queue


class Pace:
    """Ticks come every `interval` seconds; `period` is the time between two repaints, in seconds.

    Call `tick` at every tick and `painted` when that tick repainted something. Late ticks after repaints
    double the period up to SLOWEST, ticks on time halve it down to `interval`.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.period = interval
        self._last_tick = -math.inf
        self._last_paint = -math.inf
        self._painted = False
        self._late = 0
        self._on_time = 0

    def tick(self, now: float) -> bool:
        """True when a repaint is due. `now`: seconds of a clock that never goes back."""
        if self._painted:
            self._painted = False
            self._judge(late=now - self._last_tick > LATE * self.interval)
        self._last_tick = now
        # ticks jitter: one that comes a little early still counts as a full period
        return now - self._last_paint >= self.period - self.interval / 2

    def painted(self) -> None:
        """The newest tick has repainted something; the next one tells how long that took."""
        self._last_paint = self._last_tick
        self._painted = True

    def _judge(self, *, late: bool) -> None:
        self._late = self._late + 1 if late else 0
        self._on_time = 0 if late else self._on_time + 1
        if self._late == LATE_IN_A_ROW:
            self.period = max(self.interval, min(2 * self.period, SLOWEST))
            self._late = 0
        elif self._on_time == ON_TIME_IN_A_ROW:
            self.period = max(self.interval, self.period / 2)
            self._on_time = 0
