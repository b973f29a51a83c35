"""How many threads to compute with, chosen from how long the steps take, and chosen again all the time.

llama.cpp's threads spin at every barrier of the graph. Alone on the machine two are faster than one; beside a
busy neighbour two can be many times slower, since each barrier waits for the thread that lost its core. A
neighbour that comes shows in the time of the steps. One that leaves does not show while one thread computes:
so the governor tries the next count now and then, for a few steps, and stays where it is faster.

Trying has a price: the slower the count tried last time, the longer the wait before the next try.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["decode", "prefill"]

DECODE_TOKENS = 32  # a step of more tokens counts as prefill-like
SMALL = 16
WINDOW = 8  # steps whose mean stands for "now"
SETTLE = 3  # steps at a count before another is tried
TRY_STEPS = 4  # steps of a trial
LONG_STEP = 0.1  # seconds of trial that are enough, however few the steps
HOPELESS = 1.6  # a trial's first step this many times slower ends it
BETTER = 0.95  # a trial wins when its mean is below this share of the present mean
WORSE = 1.2  # a present mean above this multiple of what was usual asks for a trial at once
FOLLOW = 0.05  # how fast "usual" follows what is seen
PRICE = 20.0  # wait this many times the time that a lost trial cost: 5% of all time at most …
SHORTEST, LONGEST = 0.7, 20.0  # … within these seconds


class _Lane:
    """The choice for one kind of step. Times are in units of `usual`, seconds a token by size of step."""

    def __init__(self, max_threads: int) -> None:
        self.max_threads = max_threads
        self.count = 1
        self.candidate: int | None = None
        self.usual: dict[int, float] = {}
        self._samples: dict[int, int] = {}  # how many steps each of these is made of
        self.recent: deque[float] = deque(maxlen=WINDOW)
        self.direction = 1
        self.refused: set[int] = set()  # counts that lost a trial since the last switch
        self.wait_until = 0.0
        self.steps = 0  # since the last switch or trial
        self._trial: list[tuple[float, float]] = []  # (units, seconds) of each step

    @property
    def now(self) -> float:
        """Mean of the latest steps, 1.0 being usual."""
        return sum(self.recent) / len(self.recent) if self.recent else 1.0

    def threads(self, tokens: int, now: float) -> int:
        """The count for a step that starts now."""
        if self.candidate is None and self._wants_trial(now):
            self.candidate = self._next_candidate()
            self._trial = []
        if self.candidate is not None and _size(tokens) not in self.usual:
            self.candidate = None  # nothing to compare such a step with
        return self.count if self.candidate is None else self.candidate

    def _wants_trial(self, now: float) -> bool:
        if self.max_threads == 1 or self.steps < SETTLE:
            return False
        if self.now > WORSE:  # most likely somebody else wants the cores: look at fewer first
            self.refused.clear()
            self.direction = -1
            return True
        return now >= self.wait_until

    def _next_candidate(self) -> int:
        """The neighbour in the direction that won last, else the other one."""
        ahead, behind = self.count + self.direction, self.count - self.direction
        if not 1 <= ahead <= self.max_threads or (ahead in self.refused and 1 <= behind <= self.max_threads):
            self.direction = -self.direction
            ahead = behind
        return ahead

    def saw(self, tokens: int, seconds: float, now: float) -> None:
        """A step of the count that `threads` named has ended."""
        size, cost = _size(tokens), seconds / tokens
        if self.candidate is not None:
            self._trial.append((self.usual[size] * tokens, seconds))
            self._judge(now)
            return
        usual = self.usual.setdefault(size, cost)
        self.recent.append(cost / usual)
        self._samples[size] = self._samples.get(size, 0) + 1
        self.usual[size] = usual + max(FOLLOW, 1 / self._samples[size]) * (cost - usual)
        self.steps += 1

    def _judge(self, now: float) -> None:
        """End the trial when it has seen enough: switch, or go back and wait."""
        units, seconds = (sum(column) for column in zip(*self._trial, strict=True))
        ratio = seconds / units
        hopeless = ratio > HOPELESS * self.now
        if not hopeless and len(self._trial) < TRY_STEPS and seconds < LONG_STEP:
            return
        tried = self.candidate
        self.candidate, self.steps = None, 0
        if tried is None:
            return
        if ratio < BETTER * self.now:
            self.refused = {self.count}
            self.direction = 1 if tried > self.count else -1
            self.count = tried
            self.usual = {size: cost * ratio for size, cost in self.usual.items()}
            self.recent.clear()
            self.wait_until = now
            return
        # What was usual is what is now: a machine that became slower as a whole asks for no more trials.
        self.usual = {size: cost * self.now for size, cost in self.usual.items()}
        self.recent.clear()
        lost = max(0.0, seconds - self.now * units)
        self.refused.add(tried)
        neighbours = {self.count - 1, self.count + 1} & set(range(1, self.max_threads + 1))
        if neighbours <= self.refused:
            self.wait_until = now + min(LONGEST, max(SHORTEST, PRICE * lost))
            self.refused.clear()


def _size(tokens: int) -> int:
    """Steps that are compared with each other: of equal size up to 16 tokens, then four sizes an octave."""
    return tokens if tokens <= SMALL else SMALL + round(4 * math.log2(tokens / SMALL))


class ThreadGovernor:
    """Chooses the thread count of every step, for decode-like and prefill-like steps apart.

    max_threads: never more than these; leave a core to a screen that is drawn meanwhile. set_threads(count)
    is called between steps, only when the count changes (`Context.set_threads`). clock: seconds, monotonic.
    Around each decode: `with governor.step(number_of_tokens): context.decode(batch)`.
    """

    def __init__(
        self, max_threads: int, set_threads: Callable[[int], None], clock: Callable[[], float]
    ) -> None:
        if max_threads < 1:
            raise ValueError(f"max_threads is {max_threads}; it has to be 1 or more")
        self._set_threads = set_threads
        self._clock = clock
        self._lanes: dict[Kind, _Lane] = {"decode": _Lane(max_threads), "prefill": _Lane(max_threads)}
        self.current = 0  # what was set last; 0 before the first step

    @property
    def chosen(self) -> dict[Kind, int]:
        """The counts it would choose now, trials aside."""
        return {kind: lane.count for kind, lane in self._lanes.items()}

    @contextmanager
    def step(self, tokens: int) -> Iterator[int]:
        """Measure one step; gives the count that it runs with. A step that raises is not counted."""
        lane = self._lanes["decode" if tokens <= DECODE_TOKENS else "prefill"]
        started = self._clock()
        count = lane.threads(tokens, started)
        if count != self.current:
            self._set_threads(count)
            self.current = count
        yield count
        ended = self._clock()
        lane.saw(tokens, ended - started, ended)

    def check_integrity(self) -> None:
        """Raises AssertionError when a count is out of range or a trial is not with a neighbour."""
        for kind, lane in self._lanes.items():
            tried = lane.candidate if lane.candidate is not None else lane.count
            valid = 1 <= lane.count <= lane.max_threads and 1 <= tried <= lane.max_threads
            if not valid or abs(tried - lane.count) > 1:
                raise AssertionError(f"{kind}: count {lane.count}, candidate {lane.candidate}")
