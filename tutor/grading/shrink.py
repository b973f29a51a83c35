"""A failing input made small enough to try by hand: take away, halve, keep what still fails.

The greedy descent of property-based testing (Hypothesis and QuickCheck do it with more means): of all simpler
cases the first that fails takes the place of the case, until none fails or the bounds are reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tutor.grading.errors import NoAnswer
from tutor.grading.failed import CheckFailed

T = TypeVar("T")
S = TypeVar("S", bound=Sequence[object])

MOST_RUNS = 300
MOST_SECONDS = 1.0
SHORT = 24


def smallest(
    failure: CheckFailed,
    case: T,
    run: Callable[[T], None],
    simpler: Callable[[T], Iterable[T]],
    *,
    runs: int = MOST_RUNS,
    seconds: float = MOST_SECONDS,
) -> CheckFailed:
    """The failure of the smallest case found. One whose mistake has a name is kept as it is.

    A case on which the code gives no answer (it raises, hangs or ends) ends the search with what was found.
    """
    best, left, end = failure, runs, time.monotonic() + seconds
    if failure.misconception:
        return failure
    found = True
    while found:
        found = False
        for candidate in simpler(case):
            if left <= 0 or time.monotonic() > end:
                return best
            left -= 1
            try:
                run(candidate)
            except CheckFailed as error:
                if not error.misconception:
                    best, case, found = error, candidate, True
                    break
            except NoAnswer:
                return best
    return best


def shorter(items: S, least: int = 0) -> Iterator[S]:
    """The sequence without one run of its items, the longest runs first; `least` items stay.

    Every run of a short sequence; of a long one halves, quarters and so on down to single items.
    """
    length = len(items)
    for size in range(length - least, 0, -1) if length <= SHORT else _halves(length):
        step = 1 if length <= SHORT else size
        for start in range(0, length - size + 1, step):
            yield items[:start] + items[start + size :]  # type: ignore[operator]


def _halves(length: int) -> Iterator[int]:
    while (length := length // 2) >= 1:
        yield length


def smaller_numbers(values: Sequence[int], least: int = 0) -> Iterator[list[int]]:
    """One of the numbers made smaller: the least possible, half of it, one less."""
    for index, value in enumerate(values):
        for other in dict.fromkeys((least, value // 2, value - 1)):
            if least <= other < value:
                yield [*values[:index], other, *values[index + 1 :]]
