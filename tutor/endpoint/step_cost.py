"""What a step costs by its number of rows, learned while serving, for the adaptive length of drafts."""

from __future__ import annotations

DECAY = 0.98  # weight of a step after one more: about 50 steps are remembered
MOST_ROWS = 64  # longer steps are prefill, which does not lie on the same line


class StepCost:
    """Duration of a step of n rows as a + b n, by least squares in which older steps weigh less.

    Until steps of two sizes were seen a row is taken to cost half of what the step costs anyway, which is
    what a small model on a CPU looks like; the first steps correct it.
    """

    def __init__(self) -> None:
        self._weight = self._n = self._t = self._nn = self._nt = 0.0

    def saw(self, rows: int, seconds: float) -> None:
        if not 0 < rows <= MOST_ROWS:
            return
        self._weight = DECAY * self._weight + 1.0
        self._n = DECAY * self._n + rows
        self._t = DECAY * self._t + seconds
        self._nn = DECAY * self._nn + rows * rows
        self._nt = DECAY * self._nt + rows * seconds

    def __call__(self, rows: int) -> float:
        """Expected seconds of a step; always above 0 and never falling with rows."""
        spread = self._weight * self._nn - self._n * self._n
        if spread <= 1e-9 * max(1.0, self._nn):
            return 1.0 + 0.5 * rows
        slope = max(0.0, (self._weight * self._nt - self._n * self._t) / spread)
        start = (self._t - slope * self._n) / self._weight
        return max(start + slope * rows, 1e-9)
