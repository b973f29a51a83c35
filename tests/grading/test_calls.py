"""Calls between check and learner's code: nesting, limits, and whose mistake a wrong argument is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tutor.grading import rpc
from tutor.grading.calls import Clock, GuestCalls, LearnerError
from tutor.grading.errors import ReplyError
from tutor.grading.kit import CheckFailed, Refused
from tutor.grading.pool import GuestPool
from tutor.grading.process import GuestTimeout
from tutor.grading.protocols import Callback
from tutor.llama.errors import BadBatch, ModelNotFound

SOURCE = """
def total(numbers):
    return sum(numbers)

def apply(step, *args, **kwargs):
    return step(*args, **kwargs)

def same(value):
    return value

def forever(step):
    while True:
        step()

def caught(step):
    try:
        return step()
    except RuntimeError as error:
        return f"caught: {error}"

def touch(x):
    x[0] = 7
    return x

def peek(thing):
    return [thing.limit, repr(thing), thing.add(1), thing.missing]

class Node:
    def __init__(self, value):
        self.value = value
        self.next = None

    def link(self, other):
        self.next = other
        return self

    def second(self):
        return self.next.value
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[GuestPool]:
    guests = GuestPool()
    guests.refill()
    yield guests
    guests.close()


@contextmanager
def loaded(pool: GuestPool, clock: Clock) -> Iterator[GuestCalls]:
    calls = GuestCalls(pool.take(), clock, Counter(), None)
    try:
        calls.load(rpc.Load(rpc.new_nonce(), "mine.py", SOURCE, ("total",), "/nowhere", 768, 60))
        pool.refill()
        yield calls
    finally:
        pool.give_back(calls.process)


@pytest.fixture
def calls(pool: GuestPool) -> Iterator[GuestCalls]:
    with loaded(pool, Clock(5.0, 30.0)) as made:
        yield made


def function(step: Callable[..., Any]) -> Callback:
    return Callback(step, {}, {}, "step")


def test_a_callback_may_call_into_the_guest_again(calls: GuestCalls) -> None:
    def step(depth: int) -> Any:
        if depth == 0:
            return calls.call("total", [1, 2])
        return [depth, calls.call("apply", function(step), depth - 1)]

    assert calls.call("apply", function(step), 3) == [3, [2, [1, 3]]]
    assert calls.call("total", [4]) == 4


def test_a_wrong_argument_is_the_learners_mistake(calls: GuestCalls) -> None:
    with pytest.raises(LearnerError) as caught:
        calls.call("apply", function(lambda ids: ids[0]), [])
    assert (caught.value.kind, caught.value.message) == ("IndexError", "step: list index out of range")
    assert caught.value.where == "mine.py:6"
    with pytest.raises(LearnerError, match="TypeError"):
        calls.call("apply", function(lambda ids: 0), 1, 2, 3)
    assert calls.call("total", [4]) == 4, "the guest is still good"


@pytest.mark.parametrize("error", [Refused("No cells are free."), BadBatch("No cells are free.")])
def test_a_refusal_can_be_caught(calls: GuestCalls, error: Exception) -> None:
    def step() -> None:
        raise error

    assert calls.call("caught", function(step)) == "caught: No cells are free."


@pytest.mark.parametrize("error", [CheckFailed("Too many calls."), ModelNotFound("There is no model.")])
def test_what_ends_the_check_ends_the_call(calls: GuestCalls, error: Exception) -> None:
    def step() -> None:
        raise error

    with pytest.raises(type(error)):
        calls.call("caught", function(step))
    assert calls.broken
    with pytest.raises(ReplyError, match="ended already"):
        calls.call("total", [1])


def test_an_endless_loop_around_a_callback_ends(pool: GuestPool) -> None:
    with loaded(pool, Clock(5.0, 1.0)) as calls, pytest.raises(GuestTimeout) as caught:
        calls.call("forever", function(lambda: 0))
    assert (caught.value.limit, caught.value.total) == (1.0, True)


def test_time_between_calls_does_not_count(pool: GuestPool) -> None:
    clock = Clock(5.0, 30.0)
    with loaded(pool, clock) as calls:
        before = clock._left
        np.linalg.svd(np.random.default_rng(1).normal(size=(300, 300)))
        assert clock._left == before
        calls.call("total", [1])
        assert clock._left < before


def test_objects_stay_in_the_guest_and_may_be_arguments(calls: GuestCalls) -> None:
    first, second = calls.new("Node", 1), calls.new("Node", [2])
    assert first.new("link", second).call("second") == [2]
    assert second.get("value") == [2]
    with pytest.raises(LearnerError, match="AttributeError"):
        second.get("colour")


def test_changes_in_place_can_be_seen(calls: GuestCalls) -> None:
    x = np.zeros(3, np.float32)
    sent = calls.put(x)
    calls.call("touch", sent)
    assert sent.value().tolist() == [7.0, 0.0, 0.0] and x.tolist() == [0.0, 0.0, 0.0]


def test_a_large_array_crosses_whole(calls: GuestCalls) -> None:
    x = np.random.default_rng(1).normal(size=(4096, 576)).astype(np.float32)
    assert np.array_equal(calls.put(x).value(), x)


def test_a_remote_object_shows_what_it_has(calls: GuestCalls) -> None:
    remote = Callback(None, {"add": lambda n: n + 1}, {"limit": 4}, "engine")
    with pytest.raises(LearnerError) as caught:
        calls.call("peek", remote)
    assert caught.value.message == "engine has no 'missing'; it has add, limit"


def test_the_graders_own_objects_are_no_answers(calls: GuestCalls) -> None:
    remote = Callback(None, {"add": lambda n: n + 1}, {}, "engine")
    for value in (remote, function(lambda: 0)):
        with pytest.raises(LearnerError) as caught:
            calls.call("same", value)
        assert caught.value.kind == "NotPlain" and "the grader's own" in caught.value.message
