"""Plain values cross unchanged, everything else is refused on both sides."""

from __future__ import annotations

import enum
import itertools
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutor.grading.compare import first_difference
from tutor.grading.errors import ReplyError
from tutor.grading.rpc import Done, FrameReader, encode, new_nonce
from tutor.grading.values import NotPlain, Packer, Record, Unpacker

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=9)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.frozensets(st.integers(), max_size=4).map(set)
    ),
    max_leaves=12,
)


def cross(value: Any) -> Any:
    """As between two processes: packed, encoded, decoded, rebuilt."""
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(Packer().pack(value)))
    return Unpacker().unpack(tree)


@given(plain)
def test_plain_values_cross_unchanged(value: Any) -> None:
    back = cross(value)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float16", "float32", ">f4"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_arrays_cross_unchanged(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.random.default_rng(1).uniform(0, 9, size=shape)).astype(dtype)
    back = cross(array)
    assert np.array_equal(back, array) and back.shape == shape
    assert back.dtype == array.dtype.newbyteorder("<")
    assert back.flags.writeable


def test_an_array_that_is_not_contiguous_keeps_its_order() -> None:
    array = np.arange(24).reshape(4, 6)[::2, ::-1].T
    assert np.array_equal(cross(array), array)


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Completion:
    text: str
    ids: list[int]


class Simple:
    def __init__(self) -> None:
        self.size = 3


class Colour(enum.IntEnum):
    RED = 4


class Shout(str):
    def __str__(self) -> str:
        return "no"


def test_objects_with_fields_become_records() -> None:
    assert cross(Completion("hi", [1])).as_dict() == {"text": "hi", "ids": [1]}
    assert cross(Point(1, 2)).y == 2
    assert cross(Simple()).size == 3
    with pytest.raises(AttributeError, match="Point has no field 'z'"):
        _ = cross(Point(1, 2)).z


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (Colour.RED, 4),
        (Shout("yes"), "yes"),
        (range(3), [0, 1, 2]),
        (deque([1]), [1]),
        (iter((1, [2])), [1, [2]]),
        (map(str, (1, 2)), ["1", "2"]),
        ({"a": 1}.items(), [("a", 1)]),
        (Counter("a"), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (bytearray(b"x"), b"x"),
    ],
)
def test_relatives_of_plain_values_become_plain(value: Any, expected: Any) -> None:
    back = cross(value)
    assert back == expected and type(back) is type(expected)


def _cycle() -> list[Any]:
    held: list[Any] = []
    held.append({"again": held})
    return held


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "phrase"),
    [
        (_cycle(), "contains itself"),
        (_deep(), "nested more than"),
        (object(), "type object"),
        (len, "type builtin_function_or_method"),
        (int, "type type"),
        (np.array([None]), "dtype object"),
        (np.array(["a"]), "dtype <U1"),
        (1j, "type complex"),
        (itertools.count(), "goes on after 1,000,000 items"),
    ],
)
def test_everything_else_is_refused(value: Any, phrase: str) -> None:
    with pytest.raises(NotPlain, match=phrase):
        Packer().pack(value)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        ["q", 1],
        [1, 2],
        {"a": 1},
        ["l"],
        ["l", 3],
        ["d", [[1]]],
        ["d", [[["l", []], 1]]],
        ["a", "<f4", [2], b"123"],
        ["a", "|O8", [1], b"12345678"],
        ["a", "<f4", [-1], b"1234"],
        ["a", "<f4", [2**40, 2**40], b""],
        ["i", 5],
        ["h", 3],
        ["p", 0, [], {}, "x"],
        ["r", "Name", [["a"]]],
    ],
)
def test_malformed_trees_are_refused(tree: Any) -> None:
    with pytest.raises(ReplyError):
        Unpacker().unpack(tree)


@given(st.binary(min_size=1, max_size=60))
def test_noise_is_never_an_answer(noise: bytes) -> None:
    reader = FrameReader()
    reader.feed(noise)
    try:
        messages = list(reader.messages())
    except ReplyError:
        return
    assert messages == []


def test_a_deeply_nested_frame_is_refused() -> None:
    body = b"\x91" * 100_000 + b"\xc0"
    reader = FrameReader()
    reader.feed(len(body).to_bytes(4, "big") + body)
    with pytest.raises(ReplyError):
        list(reader.messages())


def test_frames_may_arrive_in_pieces() -> None:
    message = Done(new_nonce(), ["l", [1, 2]])
    reader, seen = FrameReader(), []
    for byte in encode(message) + encode(message):
        reader.feed(bytes([byte]))
        seen += list(reader.messages())
    assert seen == [message, message]


@pytest.mark.parametrize(
    ("actual", "expected", "where", "reason"),
    [
        ([1, 2, 3], [1, 2, 4], "[2]", ""),
        ([1, 2], [1, 2, 3], "[2]", "it has 2 items, not 3"),
        ([1, 2, 3], (1, 2), "[2]", "it has 3 items, not 2"),
        ({"a": 1}, {"a": 1, "b": 2}, "['b']", "the key 'b' is missing"),
        ({"a": 1, "b": 2}, {"a": 1}, "['b']", "the key 'b' is too much"),
        (True, 1, "", "it is a bool, not an int"),
        ("1", 1, "", "it is a str, not an int"),
        (b"a", "a", "", "it is a bytes, not a str"),
        (None, [1], "", "it is None, not a list"),
        ([[1], [2, 5]], [[1], [2, 3]], "[1][1]", ""),
        (np.zeros((2, 2)), np.array([[0, 0], [0, 1]]), "[1, 1]", ""),
        (np.zeros(3), np.zeros((3, 1)), "", "its shape is (3,), not (3, 1)"),
        ("text", np.zeros(3), "", "it is a str, not an array"),
    ],
)
def test_first_difference(actual: Any, expected: Any, where: str, reason: str) -> None:
    found = first_difference(actual, expected)
    assert found is not None
    assert (found.where, found.reason) == (where, reason)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ((1, 2), [1, 2]),
        (3.0, 3),
        ([1.0, 2], np.array([1, 2])),
        (np.array([np.nan]), np.array([np.nan])),
        (float("nan"), float("nan")),
        (Record("P", {"x": 1}), (1,)),
        (Record("P", {"x": 1}), {"x": 1}),
    ],
)
def test_equal_enough(actual: Any, expected: Any) -> None:
    assert first_difference(actual, expected) is None
