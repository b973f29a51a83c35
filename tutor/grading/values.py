"""Plain values as MessagePack trees: what may cross between judge and guest, and nothing else.

None, bool, int, float and str, bytes are themselves; everything else is a list that starts with a tag:

    ["l", [...]] list     ["t", [...]] tuple     ["s", [...]] set     ["d", [[key, value], ...]] dict
    ["i", "123"] int outside 64 bits             ["a", dtype, shape, bytes] NumPy array, C order
    ["r", type name, [[field, value], ...]] dataclass, NamedTuple or simple object
    ["h", id] an object that stays in the guest   ["p", id, methods, attrs, label] a callable of the judge

`pack` converts (in the guest: the learner's objects), `unpack` rebuilds with every shape checked, so a
value in the judge is always made of the judge's own built-in types, whatever the guest sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Sequence, ValuesView
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np

from tutor.grading.errors import ReplyError

Tree = Any  # None | bool | int | float | str | bytes | [tag, ...]

SCALARS = frozenset({type(None), bool, int, float, str, bytes})
MAX_DEPTH = 64
MAX_DRAWN = 1_000_000  # items of an iterator: it may have no end
_SMALL = SCALARS - {int}  # an int may need a tag
_DTYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"])
_INT64 = range(-(2**63), 2**64)


class NotPlain(Exception):
    """A value cannot cross. `str(error)` continues the sentence "it returned ..."."""


class Record:
    """What a dataclass, NamedTuple or simple object becomes in the judge: its fields as attributes."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self._name = name
        self._fields = dict(values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"{self._name} has no field {name!r}") from None

    def as_dict(self) -> dict[str, Any]:
        return dict(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._fields == other._fields

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{k}={v!r}' for k, v in self._fields.items())})"


class Packer:
    """Values to trees. `special` may turn an object into a tree of its own (handles, callables)."""

    def __init__(self, special: Callable[[Any], Tree | None] | None = None, records: bool = True) -> None:
        self._special = special
        self._records = records

    def pack(self, value: Any) -> Tree:
        return self._pack(value, 0, set())

    def _pack(self, value: Any, depth: int, above: set[int]) -> Tree:
        kind = type(value)
        if kind in SCALARS:
            if kind is int and value not in _INT64:
                return ["i", format(value, "x")]
            return value
        if self._special is not None and (tree := self._special(value)) is not None:
            return tree
        if isinstance(value, np.ndarray):
            return pack_array(value)
        if isinstance(value, np.generic):
            return self._pack(value.item(), depth + 1, above) if depth <= MAX_DEPTH else None
        if depth >= MAX_DEPTH:
            raise NotPlain(f"a value nested more than {MAX_DEPTH} levels deep")
        if id(value) in above:
            raise NotPlain(f"a {kind.__name__} that contains itself")
        above.add(id(value))
        try:
            return self._composite(value, depth + 1, above)
        finally:
            above.discard(id(value))

    def _composite(self, value: Any, depth: int, above: set[int]) -> Tree:
        kind = type(value)
        if kind is list or kind is tuple:  # by far the most frequent ones come first
            return ["l" if kind is list else "t", self._items(value, depth, above)]
        if kind is dict:
            return ["d", [self._items((key, item), depth, above) for key, item in value.items()]]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return self._record(kind.__name__, dict(zip(kind._fields, value, strict=False)), depth, above)
        if is_dataclass(value) and not isinstance(value, type):
            named = {field.name: getattr(value, field.name) for field in fields(value)}
            return self._record(kind.__name__, named, depth, above)
        for tag, base in (("l", list), ("t", tuple), ("l", range), ("l", deque)):
            if isinstance(value, base):
                return [tag, self._items(list(value), depth, above)]
        if isinstance(value, (set, frozenset)):
            return ["s", self._items(list(value), depth, above)]
        if isinstance(value, dict):
            return ["d", [self._items((key, item), depth, above) for key, item in dict.items(value)]]
        if isinstance(value, (Iterator, KeysView, ValuesView, ItemsView)):
            return ["l", self._items(_drawn(value), depth, above)]
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        for scalar in (bool, int, float, str, bytes):  # subclasses such as IntEnum: keep the plain part
            if isinstance(value, scalar):
                return self._pack(_plain(value, scalar), depth, above)
        return self._object(value, depth, above)

    def _object(self, value: Any, depth: int, above: set[int]) -> Tree:
        kind = type(value)
        simple = self._records and kind.__module__ != "builtins" and not callable(value)
        held = getattr(value, "__dict__", None) if simple else None
        if not held or not isinstance(held, dict) or any(callable(item) for item in held.values()):
            raise NotPlain(f"a value of type {kind.__name__}")
        return self._record(kind.__name__, {str(key): item for key, item in held.items()}, depth, above)

    def _record(self, name: str, named: dict[str, Any], depth: int, above: set[int]) -> Tree:
        return ["r", str(name), [[key, self._pack(item, depth, above)] for key, item in named.items()]]

    def _items(self, items: Sequence[Any], depth: int, above: set[int]) -> list[Tree]:
        if _SMALL.issuperset(map(type, items)):
            return list(items)
        return [self._pack(item, depth, above) for item in items]


def _drawn(items: Iterable[Any]) -> list[Any]:
    """All items of a generator, map, zip or dict view: where a list is expected, these answer as well."""
    drawn = list(islice(items, MAX_DRAWN + 1))
    if len(drawn) > MAX_DRAWN:
        raise NotPlain(f"a {type(items).__name__} that goes on after {MAX_DRAWN:,} items")
    return drawn


def _plain(value: Any, scalar: type) -> Any:
    # the base class's own method, so that an overridden __str__ or __int__ of an enum does not matter
    if scalar is int:
        return int.__index__(value)
    if scalar is float:
        return float.__add__(value, 0.0)
    return str.__str__(value) if scalar is str else b"".join([value])


def pack_array(array: np.ndarray[Any, Any]) -> Tree:
    """An array of numbers or bools; object, string and structured arrays raise NotPlain."""
    plain = np.ascontiguousarray(np.asarray(array)).reshape(np.shape(array))
    if plain.dtype.byteorder == ">":
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    if plain.dtype.str not in _DTYPES:
        raise NotPlain(f"an array of dtype {plain.dtype}")
    return ["a", plain.dtype.str, list(plain.shape), plain.tobytes()]


class Unpacker:
    """Trees to values. `special` rebuilds handles and callables; without it they are refused."""

    def __init__(self, special: Callable[[list[Tree]], Any] | None = None) -> None:
        self._special = special

    def unpack(self, tree: Tree) -> Any:
        try:
            return self._unpack(tree, 0)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise ReplyError(f"a malformed value came over the pipe ({error})") from error

    def _unpack(self, tree: Tree, depth: int) -> Any:
        if type(tree) in SCALARS:
            return tree
        if type(tree) is not list or not tree or type(tree[0]) is not str or depth > 2 * MAX_DEPTH:
            raise ReplyError("a malformed value came over the pipe")
        tag = tree[0]
        if tag in ("l", "t", "s"):
            (items,) = tree[1:]
            values = [self._unpack(item, depth + 1) for item in items]
            return values if tag == "l" else tuple(values) if tag == "t" else set(values)
        if tag == "d":
            (pairs,) = tree[1:]
            return {self._unpack(k, depth + 1): self._unpack(v, depth + 1) for k, v in pairs}
        if tag == "r":
            name, pairs = tree[1:]
            return Record(str(name), {str(k): self._unpack(v, depth + 1) for k, v in pairs})
        if tag == "i":
            (digits,) = tree[1:]
            return int(digits, 16)
        if tag == "a":
            return unpack_array(*tree[1:])
        if self._special is None:
            raise ReplyError(f"a value with the unknown tag {tag!r} came over the pipe")
        return self._special(tree)


def unpack_array(dtype: str, shape: list[int], data: bytes) -> np.ndarray[Any, Any]:
    """A fresh, writable array; ReplyError when dtype, shape and bytes do not fit together."""
    if dtype not in _DTYPES or type(data) is not bytes or any(type(n) is not int or n < 0 for n in shape):
        raise ReplyError("a malformed array came over the pipe")
    return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(tuple(shape)).copy()
