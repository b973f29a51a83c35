"""A failing input made small enough to try by hand, in few calls, and only where no mistake has a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutor.grading.client import run_check
from tutor.grading.errors import NoAnswer
from tutor.grading.exercise import find_exercise
from tutor.grading.failed import CheckFailed
from tutor.grading.shrink import MOST_RUNS, shorter, smaller_numbers, smallest

Run = Callable[[list[int]], None]


def fails_when(condition: Callable[[list[int]], bool], name: str = "") -> tuple[Run, list[list[int]]]:
    """A check of a list that fails when the condition holds, and the cases that it was run with."""
    seen: list[list[int]] = []

    def run(case: list[int]) -> None:
        seen.append(case)
        if condition(case):
            raise CheckFailed(str(case), misconception=name)

    return run, seen


def simpler(case: list[int]) -> Iterator[list[int]]:
    yield from shorter(case)
    yield from smaller_numbers(case)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=40), st.integers(1, 120))
def test_the_smallest_failure_still_fails_and_nothing_simpler_does(values: list[int], limit: int) -> None:
    run, seen = fails_when(lambda case: sum(case) >= limit)
    try:
        run(values)
    except CheckFailed as error:
        found = smallest(error, values, run, simpler, runs=10_000, seconds=60.0)
        last = next(case for case in reversed(seen) if str(case) == str(found))
        assert sum(last) == limit and 0 not in last
        assert not any(sum(case) >= limit for case in simpler(last))


def test_the_search_is_bounded_in_runs() -> None:
    run, seen = fails_when(lambda case: len(case) > 2)
    found = smallest(CheckFailed("big"), list(range(5000)), run, simpler)
    assert len(seen) <= MOST_RUNS
    assert len(str(found)) < 100, "and comes far in them"


def test_a_mistake_with_a_name_stays_as_it_is() -> None:
    named = CheckFailed("named", misconception="off by one")
    run, seen = fails_when(lambda case: True)
    assert smallest(named, [3, 4], run, simpler) is named and not seen
    run, seen = fails_when(lambda case: True, name="off by one")
    unnamed = CheckFailed("unnamed")
    assert smallest(unnamed, [3, 4], run, simpler) is unnamed and seen


def test_a_case_without_an_answer_ends_the_search() -> None:
    def run(case: list[int]) -> None:
        if len(case) < 3:
            raise NoAnswer
        raise CheckFailed(str(case))

    found = smallest(CheckFailed("all"), [1, 2, 3, 4, 5], run, lambda case: [case[:-1]])
    assert str(found) == "[1, 2, 3]"


def test_shorter_leaves_out_every_run_of_a_short_sequence() -> None:
    whole = "abcd"
    ends = [(start, end) for start in range(4) for end in range(start + 1, 5)]
    without = {whole[:start] + whole[end:] for start, end in ends} - {""}
    assert set(shorter(whole, least=1)) == without
    assert next(iter(shorter(whole, least=1))) == "d", "the longest run goes first"
    assert list(shorter([])) == []


WRONG = {
    # new blocks go into the table backwards: no misconception of check.py names this
    "paged": (
        "self.blocks += new",
        "self.blocks += new[::-1]",
        "Try it: BlockTable(2, take), then append(3).",
    ),
    # pairs that start with e are joined late
    "tokens": (
        "_, i = min(ranked)",
        "_, i = min(ranked, key=lambda pair: pair[0] + 9000 * (pieces[pair[1]][:1] == b'e'))",
        "Try it by hand: the merges for it are b'",
    ),
}


@pytest.mark.parametrize("ident", WRONG)
def test_an_unnamed_mistake_is_shown_with_inputs_to_try_by_hand(ident: str, tmp_path: Path) -> None:
    item = find_exercise(ident)
    right, wrong, said = WRONG[ident]
    text = item.solution.read_text(encoding="utf-8")
    assert right in text
    path = tmp_path / item.file
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    verdict = run_check(ident, path)
    failed = next(result for result in verdict.checks if result.status == "fail")
    assert said in failed.message, failed.message
    assert not failed.misconception
    assert len(failed.expected) < 60 and len(failed.actual) < 60
