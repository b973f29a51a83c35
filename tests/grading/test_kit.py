"""The `expect` methods: what passes, and what a learner reads when something does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tutor.grading.kit import CheckFailed, Context, Guest, Record, close
from tutor.grading.verdict import CheckResult, Status, Verdict, from_json, overall, to_json


class NoReferences:
    def get(self, key: str, make: Callable[[], Any]) -> Any:
        return make()


@pytest.fixture
def ctx() -> Context:
    def no_model() -> Any:
        raise AssertionError("these tests use no model")

    return Context(
        name="a check",
        seed=7,
        guest=cast("Guest", None),
        references=NoReferences(),
        model=no_model,
        folder=Path(),
    )


def failure(call: Callable[[], Any]) -> CheckFailed:
    with pytest.raises(CheckFailed) as caught:
        call()
    return caught.value


def test_expect_equal_names_the_first_difference(ctx: Context) -> None:
    ctx.expect_equal([1, 2], (1, 2))
    error = failure(lambda: ctx.expect_equal([1, 5, 3], [1, 2, 4], where="ids", note="Count from 0."))
    assert error.sentence == "ids[1] is 5, expected 2. Count from 0."
    assert (error.expected, error.actual, error.where) == ("[1, 2, 4]", "[1, 5, 3]", "ids[1]")


def test_expect_close_states_error_and_tolerance(ctx: Context) -> None:
    expected = np.array([1.0, 2.0, 2.0])
    ctx.expect_close([1.0, 2.0, 2.0003], expected, max_relative=1e-3)
    error = failure(lambda: ctx.expect_close([1.0, 2.0, 2.3], expected, max_relative=1e-3, where="row"))
    assert error.sentence == (
        "row is off by 0.1 relative, allowed is 0.001; farthest at row[2]: 2.3, expected 2."
    )
    error = failure(lambda: ctx.expect_close(2.5, 2.0, rtol=0.1, where="mean"))
    assert error.sentence == (
        "mean is off by up to 0.5, allowed is 0 + 0.1·|expected|; farthest at mean: 2.5, expected 2."
    )


@pytest.mark.parametrize(
    ("actual", "phrase"),
    [
        (np.zeros((3, 1)), "has shape (3, 1), expected (3,)"),
        (np.array([0.0, np.nan, 0.0]), "result[1] is not a finite number"),
        (np.array([0.0, np.inf, 0.0]), "result[1] is not a finite number"),
        ("text", "expected numbers of shape (3,)"),
        (None, "expected numbers of shape (3,)"),
        ([[1], [1, 2]], "expected numbers of shape (3,)"),
    ],
)
def test_expect_close_refuses_other_things(ctx: Context, actual: Any, phrase: str) -> None:
    assert phrase in failure(lambda: ctx.expect_close(actual, np.zeros(3), atol=1.0)).sentence


def test_expect_close_can_ask_for_a_dtype(ctx: Context) -> None:
    ctx.expect_close(np.zeros(3, np.float32), np.zeros(3), atol=0, dtype="float32")
    error = failure(lambda: ctx.expect_close(np.zeros(3), np.zeros(3), atol=0, dtype="float32"))
    assert "has dtype float64, expected float32" in error.sentence


def test_a_misconception_comes_first(ctx: Context) -> None:
    ctx.misconception("other", False, "Not this.")
    ctx.misconception("wrong shape", lambda: bool(np.zeros(2) + np.zeros(3)), "Nor this.")
    ctx.misconception("heads", lambda: True, "You used the query heads.")
    error = failure(lambda: ctx.expect(False, "It is 3.", expected=1, actual=3))
    assert error.sentence.splitlines() == ["You used the query heads.", "It is 3."]
    assert (error.misconception, error.expected, error.actual) == ("heads", "1", "3")


def test_the_same_id_replaces_a_misconception(ctx: Context) -> None:
    ctx.misconception("heads", True, "From an earlier round.")
    ctx.misconception("heads", False, "From this round.")
    assert failure(lambda: ctx.fail("Wrong.")).sentence == "Wrong."


def test_fields(ctx: Context) -> None:
    answer = Record("Completion", {"text": "hi", "ids": [1]})
    assert ctx.fields(answer, "ids", "text") == ([1], "hi")
    assert ctx.fields({"ids": [2]}, "ids") == ([2],)
    assert "has no field 'n'; its fields are text, ids" in failure(lambda: ctx.fields(answer, "n")).sentence
    assert "returned 'hi'; return an object" in failure(lambda: ctx.fields("hi", "text")).sentence


def test_close() -> None:
    assert close([1.0, 2.0], np.array([1.0, 2.0005]))
    assert not close([1.0, 2.0], np.array([1.0, 2.1]))
    assert not close("text", np.zeros(2)) and not close(np.zeros(3), np.zeros(2))


def test_each_check_has_its_own_stream(ctx: Context) -> None:
    first = ctx.rng.integers(0, 2**40)
    again = np.random.default_rng([7, 0]).integers(0, 2**40)
    assert first != again


@pytest.mark.parametrize(
    ("statuses", "total", "expected"),
    [
        (["pass", "pass"], 2, "pass"),
        (["pass"], 2, "error"),
        ([], 0, "error"),
        (["pass", "timeout", "fail"], 3, "timeout"),
    ],
)
def test_only_a_full_set_of_passes_is_a_pass(statuses: list[Status], total: int, expected: str) -> None:
    checks = tuple(CheckResult(name=str(i), status=status) for i, status in enumerate(statuses))
    assert overall(checks, total) == expected


def test_a_verdict_survives_json() -> None:
    result = CheckResult(name="a", status="fail", message="no", where="ids[3]", step=4, trace="t.jsonl")
    verdict = Verdict(exercise="sum", version=2, status="fail", checks=(result,), seed=1)
    text = to_json(verdict)
    assert from_json(text) == verdict and verdict.failed_checks == ("a",)
    import msgspec

    with pytest.raises(msgspec.ValidationError, match="schema 9"):
        from_json(text.replace('"schema": 1', '"schema": 9'))
