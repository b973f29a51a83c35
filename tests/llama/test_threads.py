"""The governor of threads on a simulated clock: it finds the best count, and again after a change."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.llama.threads import DECODE_TOKENS, SHORTEST, ThreadGovernor, idle_seconds

Cost = Callable[[int, random.Random], float]  # threads -> seconds a token

QUIET = {1: 0.016, 2: 0.012}
BUSY = {1: 0.016, 2: 0.028}
CROWDED = {1: 0.016, 2: 0.4}
RUINED = {1: 0.06, 2: 1.2}  # seen beside four busy processes


class Machine:
    """A clock that moves only while a step runs, by what the step costs with the threads that were set."""

    def __init__(
        self, max_threads: int, seed: int = 0, idle_cores: Callable[[], float] | None = None
    ) -> None:
        self.idle = 0.0
        self._idle_cores = idle_cores
        self.now = 0.0
        self.threads = 0
        self.sets = 0
        self.rng = random.Random(seed)
        self.governor = ThreadGovernor(
            max_threads, self.set_threads, lambda: self.now, (lambda: self.idle) if idle_cores else None
        )

    def set_threads(self, count: int) -> None:
        assert count != self.threads, "a count that is set already is not set again"
        self.threads = count
        self.sets += 1

    def step(self, cost: Cost, tokens: int = 1) -> None:
        with self.governor.step(tokens) as count:
            assert count == self.threads == self.governor.current
            seconds = tokens * cost(count, self.rng)
            self.now += seconds
            if self._idle_cores is not None:
                self.idle += seconds * max(0.0, self._idle_cores() - count)
        self.governor.check_integrity()

    def run(self, seconds: float, cost: Cost, tokens: int = 1) -> float:
        """Steps for so long; gives tokens a second."""
        start, made = self.now, 0
        while self.now - start < seconds:
            self.step(cost, tokens)
            made += tokens
        return made / (self.now - start)


def steady(table: dict[int, float], noise: float = 0.05) -> Cost:
    return lambda count, rng: table[count] * rng.uniform(1 - noise, 1 + noise)


def bursty(table: dict[int, float]) -> Cost:
    """Half of the steps lose a core: as slow as it takes to reach the table's mean."""

    def cost(count: int, rng: random.Random) -> float:
        fast = QUIET[count]
        return fast if rng.random() < 0.5 else 2 * table[count] - fast

    return cost


def wild(table: dict[int, float]) -> Cost:
    """Step times that spread over a factor of about nine."""
    return lambda count, rng: table[count] * rng.lognormvariate(-0.15, 0.55)


@st.composite
def tables(draw: st.DrawFn) -> dict[int, float]:
    """Seconds a token with one best count, getting worse by 15% or more with each count away from it."""
    counts = draw(st.integers(1, 8))
    best = draw(st.integers(1, counts))
    table = {best: draw(st.floats(0.001, 0.1))}
    for step in (1, -1):
        for count in range(best + step, counts + 1 if step > 0 else 0, step):
            table[count] = table[count - step] * draw(st.floats(1.15, 3.0))
    return table


def best_of(table: dict[int, float]) -> int:
    return min(table, key=table.__getitem__)


@settings(max_examples=80, deadline=None)
@given(table=tables(), seed=st.integers(0, 999), tokens=st.sampled_from([1, 8, 64]))
def test_it_converges_to_the_best_count(table: dict[int, float], seed: int, tokens: int) -> None:
    machine = Machine(max(table), seed)
    for _ in range(20 * max(table)):
        machine.step(steady(table), tokens)
    kind = "decode" if tokens <= DECODE_TOKENS else "prefill"
    assert machine.governor.chosen[kind] == best_of(table), table


@settings(max_examples=25, deadline=None)
@given(before=tables(), after=tables(), seed=st.integers(0, 999))
def test_it_follows_a_change(before: dict[int, float], after: dict[int, float], seed: int) -> None:
    """Two machines in one: what is missing in the other's table costs as its largest count, and more."""
    size = max(*before, *after)
    for table in (before, after):
        for count in range(max(table) + 1, size + 1):
            table[count] = table[count - 1] * 1.5
    machine = Machine(size, seed)
    for _ in range(20 * size):
        machine.step(steady(before))
    machine.run(30.0 + 60 * max(after.values()), steady(after))
    for _ in range(20 * size):
        machine.step(steady(after))
    assert machine.governor.chosen["decode"] == best_of(after), (before, after)


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("make", [steady, bursty])
def test_a_neighbour_that_comes_or_leaves_is_noticed_within_about_a_second(
    make: Callable[[dict[int, float]], Cost], tokens: int
) -> None:
    worst: dict[str, float] = {"comes": 0.0, "leaves": 0.0}
    scale = 1 / tokens**0.7  # a step of 8 tokens takes about as long as two of one token
    quiet = steady({count: cost * scale for count, cost in QUIET.items()})
    burst = make(BUSY)
    for seed in range(15):
        machine = Machine(2, seed)
        for name, cost, goal in (
            ("starts", quiet, 2),
            ("comes", lambda count, rng: burst(count, rng) * scale, 1),
            ("leaves", quiet, 2),
        ):
            start = machine.now
            while machine.governor.chosen["decode"] != goal:
                machine.step(cost, tokens)
                assert machine.now - start < 5.0, (name, seed)
            worst[name] = max(worst.get(name, 0.0), machine.now - start)
            machine.run(20.0, cost, tokens)
            if machine.governor.chosen["decode"] != goal:  # a lucky trial may be under way
                machine.run(0.5, cost, tokens)
    assert worst["comes"] < 1.0
    assert worst["leaves"] < 2.0


@pytest.mark.parametrize(
    "cost",
    [steady(QUIET), steady(BUSY), bursty(BUSY), steady(CROWDED), wild(RUINED), bursty({1: 0.016, 2: 0.018})],
)
def test_it_is_never_far_from_the_best_fixed_count(cost: Cost) -> None:
    """Trials included, 0.9 of the better fixed count or more, over two minutes."""
    for seed in range(5):
        fixed = []
        for count in (1, 2):
            rng = random.Random(seed)
            fixed.append(2000 / sum(cost(count, rng) for _ in range(2000)))
        assert Machine(2, seed).run(120.0, cost) > 0.9 * max(fixed)


def test_decode_and_prefill_are_chosen_apart() -> None:
    machine = Machine(2)
    for _ in range(100):
        machine.step(steady(BUSY), 1)
        machine.step(steady(QUIET), 64)
    assert machine.governor.chosen == {"decode": 1, "prefill": 2}


def test_changing_batch_sizes_are_not_taken_for_a_neighbour() -> None:
    """A larger batch costs less a token; that alone is no reason to try another count."""
    machine = Machine(2)
    tried, ideal = 0, 0.0
    for i in range(2000):
        tokens = 1 + i // 7 % 8
        machine.step(lambda count, rng, n=tokens: QUIET[count] / n**0.7, tokens)
        ideal += QUIET[2] * tokens**0.3
        tried += machine.threads == 1
    assert machine.governor.chosen["decode"] == 2
    assert tried < 4.5 * machine.now / SHORTEST, "not more often than when nothing changes"
    assert ideal / machine.now > 0.94


def test_a_machine_that_slows_down_as_a_whole_is_not_tried_forever() -> None:
    machine = Machine(2)
    machine.run(5.0, steady(QUIET))
    slow = steady({count: 3 * cost for count, cost in QUIET.items()})
    machine.run(5.0, slow)
    before = machine.sets
    machine.run(30.0, slow)
    assert machine.governor.chosen["decode"] == 2
    assert machine.sets - before < 2 * 30 / SHORTEST


def test_one_thread_is_never_left_and_set_once() -> None:
    machine = Machine(1)
    machine.run(10.0, lambda _count, rng: rng.uniform(0.001, 0.1))
    assert (machine.threads, machine.sets) == (1, 1)
    with pytest.raises(ValueError, match="max_threads is 0"):
        Machine(0)


def test_a_step_that_fails_is_not_counted() -> None:
    machine = Machine(2)
    machine.run(1.0, steady(QUIET))
    chosen = machine.governor.chosen

    def fail() -> None:
        with machine.governor.step(1):
            machine.now += 50.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    machine.run(0.1, steady(QUIET))
    assert machine.governor.chosen == chosen


def test_a_crowd_that_comes_costs_one_long_step_and_one_that_leaves_is_noticed() -> None:
    for seed in range(10):
        machine = Machine(2, seed)
        machine.run(10.0, steady(QUIET))
        start = machine.now
        while machine.governor.chosen["decode"] == 2:
            machine.step(wild(RUINED))
        assert machine.now - start < 6.0
        machine.run(60.0, wild(RUINED))
        start = machine.now
        while machine.governor.chosen["decode"] == 1:
            machine.step(steady(QUIET))
        assert machine.now - start < 20.0


def test_more_threads_are_not_tried_without_a_core_for_them() -> None:
    """`free`: cores that others leave, ours included."""
    free = 2.0
    machine = Machine(2, idle_cores=lambda: free)
    machine.run(3.0, steady(QUIET))
    assert machine.governor.chosen["decode"] == 2
    free = 1.0
    start = machine.now
    while machine.governor.chosen["decode"] == 2:
        machine.step(wild(RUINED))
    assert machine.now - start < 6.0
    before = machine.sets
    assert machine.run(60.0, wild(RUINED)) > 0.95 / RUINED[1]
    assert machine.sets - before <= 2
    free = 2.0
    start = machine.now
    while machine.governor.chosen["decode"] == 1:
        machine.step(steady(QUIET))
    assert machine.now - start < 1.2, "the crowd has left: noticed as soon as after a single neighbour"


def test_idle_time_is_read_where_there_is_any(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 4000 500 0 7 0 0 0\ncpu0 1 2 3 4 5\n", "ascii")
    assert idle_seconds(stat) == pytest.approx(4500 / os.sysconf("SC_CLK_TCK"))
    stat.write_text("something else", "ascii")
    assert idle_seconds(stat) is None
    assert idle_seconds(tmp_path / "none") is None
