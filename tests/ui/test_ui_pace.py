"""The repaint rate follows how late ticks come; the times are given, nothing waits."""

from __future__ import annotations

import pytest

from tutor.ui.pace import LATE_IN_A_ROW, ON_TIME_IN_A_ROW, SLOWEST, Pace


class Clock:
    """Ticks a pace; every repaint that is due happens and holds up the next tick by `cost` seconds."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.now = 0.0

    def run(self, seconds: float, cost: float = 0.0) -> int:
        """Returns how many repaints there were."""
        end, paints = self.now + seconds, 0
        while self.now < end - 1e-9:
            if self.pace.tick(self.now):
                self.pace.painted()
                paints += 1
                self.now += max(cost, self.pace.interval)
            else:
                self.now += self.pace.interval
        return paints


def test_every_tick_repaints_while_the_terminal_keeps_up() -> None:
    assert Clock(Pace(0.1)).run(5.0) == 50


def test_jitter_costs_no_repaint() -> None:
    pace = Pace(0.1)
    for now in (0.0, 0.12, 0.19, 0.31, 0.38, 0.5):
        assert pace.tick(now)
        pace.painted()
    assert pace.period == pace.interval


@pytest.mark.parametrize("interval", [1 / 60, 0.1, 0.3])
def test_a_slow_link_halves_the_rate_down_to_one_a_second(interval: float) -> None:
    clock = Clock(Pace(interval))
    clock.run(LATE_IN_A_ROW * 3.0, cost=3.0)
    assert clock.pace.period == interval  # the tick that tells of the last repaint is still to come
    clock.run(3.0, cost=3.0)
    assert clock.pace.period == 2 * interval
    clock.run(60.0, cost=3.0)
    assert clock.pace.period == SLOWEST
    clock.run(3.0)
    assert clock.run(4.0) in (3, 4, 5)


def test_it_recovers_when_ticks_come_in_time_again() -> None:
    clock = Clock(Pace(0.1))
    clock.run(60.0, cost=3.0)
    clock.run(2.0 * ON_TIME_IN_A_ROW + 5.0)
    assert clock.pace.period == pytest.approx(0.1)
    assert clock.run(2.0) == 20


def test_one_late_tick_changes_nothing() -> None:
    clock = Clock(Pace(0.1))
    for _ in range(5):
        clock.run(0.1, cost=3.0)
        clock.run(1.0)
    assert clock.pace.period == clock.pace.interval


def test_late_ticks_without_a_repaint_do_not_count() -> None:
    pace = Pace(0.1)
    for now in range(20):
        pace.tick(float(now))
    assert pace.period == pace.interval


def test_a_terminal_that_has_not_taken_the_last_output_gets_no_more() -> None:
    pace = Pace(0.1)
    for repaint in range(2 * LATE_IN_A_ROW):
        start = 10.0 * repaint
        assert pace.tick(start)
        pace.painted()
        assert not any(pace.tick(start + 0.1 * n, ready=False) for n in range(1, 100))
    assert pace.period == pytest.approx(0.4)


def test_output_that_is_taken_before_the_next_repaint_is_on_time() -> None:
    pace = Pace(0.1)
    pace.period = 0.4
    for n in range(4 * ON_TIME_IN_A_ROW + 1):
        if pace.tick(0.1 * n, ready=n % 4 == 0):
            pace.painted()
    assert pace.period == pytest.approx(0.2)


def test_a_rate_of_one_a_second_stays() -> None:
    clock = Clock(Pace(1.0))
    clock.run(90.0, cost=9.0)
    assert clock.pace.period == 1.0
