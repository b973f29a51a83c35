"""How many threads to compute with, chosen from how long the steps take, and chosen again all the time.

llama.cpp's threads spin at every barrier of the graph. Alone on the machine two are faster than one; beside a
busy neighbour two can be many times slower, since each barrier waits for the thread that lost its core. A
neighbour that comes shows in the time of the steps. One that leaves does not show while one thread computes:
so the governor tries the next count now and then, for a few steps, and stays where it is faster.

Trying has a price: the slower the count tried last time, the longer the wait before the next try. And where
the system tells how many cores are idle, more threads are not tried while there is no core for them.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["decode", "prefill"]

DECODE_TOKENS = 32  # a step of more tokens counts as prefill-like
SMALL = 16
WINDOW = 8  # steps whose mean stands for "now"
SMOOTH = 5  # steps from which on the slowest of them is left out
SETTLE = 3  # steps at a count before another is tried
TRY_STEPS = 4  # steps of a trial
LONG_STEP = 0.1  # seconds of trial that are enough, however few the steps
HOPELESS = 1.6  # a trial's first step this many times slower ends it
BETTER = 0.95  # a trial wins when its mean is below this share of the present mean
WORSE = 1.2  # a present mean above this multiple of what was usual asks for a trial
SHOCK = 3.0  # so does one long step above this multiple, without waiting for more
FREER = 0.5  # a present mean below this share of usual: somebody left, so the wait becomes a quarter
FOLLOW = 0.05  # how fast "usual" follows what is seen
PRICE = 20.0  # wait this many times the time that a lost trial cost: 5% of all time at most …
SHORTEST, LONGEST = 0.7, 60.0  # … within these seconds
DOUBLINGS = 3  # of SHORTEST, one for each trial of fewer threads that was lost in a row
SOON = 0.2  # seconds after which more threads are tried where a core is seen idle
IDLE = 0.5  # of a core, at least, for one more thread to be tried
BRIEF, STALE = 0.1, 2.0  # seconds over which idle time is looked at

IdleSeconds = Callable[[], float | None]
PROC_STAT = Path("/proc/stat")


def idle_seconds(path: Path = PROC_STAT) -> float | None:
    """Seconds that the machine's cores have been idle since it started, added up; None where Linux's
    /proc/stat (user nice system idle iowait …, in ticks) is not to be had.
    """
    try:
        fields = path.read_text("ascii").split(maxsplit=6)
        return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class _IdleCores:
    """Is there an idle core? Looked at only when a trial is due."""

    def __init__(self, read: IdleSeconds | None) -> None:
        self._read = read
        self._then: tuple[float, float] | None = None  # (clock, idle seconds)

    @property
    def are_known(self) -> bool:
        return self._read is not None and self._read() is not None

    def is_free(self, now: float) -> bool | None:
        """Was at least IDLE of a core idle lately? None: look again in BRIEF seconds."""
        idle = self._read() if self._read is not None else None
        if idle is None:
            return True
        then = self._then
        if then is not None and now - then[0] < BRIEF:
            return None
        self._then = (now, idle)
        if then is None or now - then[0] > STALE:
            return None
        return idle - then[1] >= IDLE * (now - then[0])


@dataclass(slots=True)
class _Wait:
    """When a trial in one direction may be made: `due` anyway, `early` when steps got slower."""

    since: float = 0.0
    early: float = 0.0
    due: float = 0.0
    losses: int = 0  # in a row

    def begin(self, now: float, lost: float, shortest: float = SHORTEST) -> None:
        """A trial cost `lost` seconds, or would have."""
        price = min(LONGEST, PRICE * lost)
        self.since, self.early, self.due = now, now + price, now + max(shortest, price)

    def shorten(self) -> None:
        self.due = min(self.due, self.since + max(SHORTEST, (self.early - self.since) / 4))

    def is_over(self, now: float, worse: bool) -> bool:
        return now >= (min(self.early, self.due) if worse else self.due)


class _Lane:
    """The choice for one kind of step. Times are in units of `usual`, seconds a token by size of step."""

    def __init__(self, max_threads: int, cores: _IdleCores) -> None:
        self.max_threads = max_threads
        self._cores = cores
        self.count = 1
        self.candidate: int | None = None
        self.usual: dict[int, float] = {}
        self._samples: dict[int, int] = {}  # how many steps each of these is made of
        self.recent: deque[float] = deque(maxlen=WINDOW)
        self._waits = {1: _Wait(), -1: _Wait()}  # by direction
        self._direction = 1  # that won last
        self._shocked = False
        self._trial: list[tuple[float, float]] = []  # (units, seconds) of each step

    @property
    def now(self) -> float:
        """Mean of the latest steps without the slowest, 1.0 being usual: one hiccup is no neighbour."""
        if len(self.recent) < SMOOTH:
            return sum(self.recent) / len(self.recent) if self.recent else 1.0
        return (sum(self.recent) - max(self.recent)) / (len(self.recent) - 1)

    def threads(self, tokens: int, now: float) -> int:
        """The count for a step that starts now."""
        known = _size(tokens) in self.usual  # else there is nothing to compare a trial with
        if not known:
            self.candidate = None
        elif self.candidate is None:
            self.candidate = self._next_candidate(now)
            self._trial = []
        return self.count if self.candidate is None else self.candidate

    def _next_candidate(self, now: float) -> int | None:
        """A neighbour to try now, or None. When steps got slower, most likely somebody else wants the cores:
        fewer threads come first then.
        """
        if not self._shocked and len(self.recent) < SETTLE:
            return None
        worse = self._shocked or self.now > WORSE
        if self.now < FREER:
            self._waits[1].shorten()
        first = -1 if worse else self._direction
        for direction in (first, -first):
            candidate = self.count + direction
            in_range = 1 <= candidate <= self.max_threads
            may_try = in_range and self._waits[direction].is_over(now, worse)
            if may_try and (direction < 0 or self._has_core(now)):
                return candidate
        return None

    def _has_core(self, now: float) -> bool:
        """May more threads be tried now? If not, it is asked again a little later."""
        free = self._cores.is_free(now)
        if not free:
            wait = self._waits[1]
            wait.due = wait.early = now + (BRIEF if free is None else SHORTEST - BRIEF)
        return bool(free)

    def saw(self, tokens: int, seconds: float, now: float) -> None:
        """A step of the count that `threads` named has ended."""
        size, cost = _size(tokens), seconds / tokens
        if self.candidate is not None:
            self._trial.append((self.usual[size] * tokens, seconds))
            self._judge(self.candidate, now)
            return
        usual = self.usual.setdefault(size, cost)
        self.recent.append(cost / usual)
        self._shocked = cost > SHOCK * usual and seconds > LONG_STEP
        self._samples[size] = self._samples.get(size, 0) + 1
        self.usual[size] = usual + max(FOLLOW, 1 / self._samples[size]) * (cost - usual)

    def _judge(self, tried: int, now: float) -> None:
        """End the trial when it has seen enough: switch, or go back and wait."""
        units, seconds = (sum(column) for column in zip(*self._trial, strict=True))
        ratio, present, direction = seconds / units, self.now, tried - self.count
        if ratio <= HOPELESS * present and len(self._trial) < TRY_STEPS and seconds < LONG_STEP:
            return
        if ratio < BETTER * present:
            self.count, self._direction = tried, direction
            self._waits[direction] = _Wait()
            self._waits[-direction].losses = 0
            # what trying the old count again would cost; a trial that is lost seldom takes all its steps
            would_cost = (present - ratio) * units / 2
            if direction > 0:
                self._waits[-1].begin(now, would_cost)
                self._waits[-1].early = now  # more threads may have won by luck: fewer are always near
            else:
                # fewer may have won by luck too; where the idle cores are known, that shows at once
                self._waits[1].begin(now, would_cost, SOON if self._cores.are_known else SHORTEST)
            level = ratio
        else:
            wait = self._waits[direction]
            wait.losses = min(wait.losses + 1, DOUBLINGS)
            # A neighbour that comes shows in the steps, one that leaves does not: only this way can wait.
            shortest = SHORTEST * (2**wait.losses if direction < 0 else 1)
            wait.begin(now, seconds - present * units, shortest)
            level = present  # a machine that became slower as a whole asks for no more trials
        self.candidate, self._shocked = None, False
        self.recent.clear()
        self.usual = {size: cost * level for size, cost in self.usual.items()}


def _size(tokens: int) -> int:
    """Steps that are compared with each other: of equal size up to 16 tokens, then four sizes an octave."""
    return tokens if tokens <= SMALL else SMALL + round(4 * math.log2(tokens / SMALL))


class ThreadGovernor:
    """Chooses the thread count of every step, for decode-like and prefill-like steps apart.

    max_threads: never more than these; leave a core to a screen that is drawn meanwhile. set_threads(count)
    is called between steps, only when the count changes (`Context.set_threads`). clock: seconds, monotonic.
    idle: `idle_seconds`, or None to go by the time of the steps alone.
    Around each decode: `with governor.step(number_of_tokens): context.decode(batch)`.
    """

    def __init__(
        self,
        max_threads: int,
        set_threads: Callable[[int], None],
        clock: Callable[[], float],
        idle: IdleSeconds | None = None,
    ) -> None:
        if max_threads < 1:
            raise ValueError(f"max_threads is {max_threads}; it has to be 1 or more")
        self._set_threads = set_threads
        self._clock = clock
        self._lanes: dict[Kind, _Lane] = {
            "decode": _Lane(max_threads, _IdleCores(idle)),
            "prefill": _Lane(max_threads, _IdleCores(idle)),
        }
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
