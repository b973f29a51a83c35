"""Where two answers differ first, how far apart two arrays are, and how a value is shown in a sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tutor.grading.values import Record

SHOWN = 240  # characters of a value that a verdict keeps


class Difference(NamedTuple):
    """`where` is a path such as `[3].text` (empty: the whole value); the others are what stands there."""

    where: str
    expected: Any
    actual: Any
    reason: str = ""


def first_difference(actual: Any, expected: Any, where: str = "") -> Difference | None:
    """None when equal. Lists and tuples are the same thing, 3 equals 3.0, but True is not 1."""
    if isinstance(expected, np.ndarray) or isinstance(actual, np.ndarray):
        return _array_difference(actual, expected, where)
    if isinstance(expected, (list, tuple)):
        return _sequence_difference(actual, expected, where)
    if isinstance(expected, dict):
        return _dict_difference(actual, expected, where)
    both = (type(actual), type(expected))
    if (bool in both and both != (bool, bool)) or (str in both and both != (str, str)):
        return Difference(where, expected, actual, _kinds(actual, expected))
    if type(actual) is float and type(expected) is float and actual != actual and expected != expected:
        return None
    return None if bool(actual == expected) else Difference(where, expected, actual)


def _kinds(actual: Any, expected: Any) -> str:
    return f"it is {_article(actual)}, not {_article(expected)}"


def _article(value: Any) -> str:
    names = {"NoneType": "None", "ndarray": "an array", "int": "an int", "Record": "an object"}
    name = type(value).__name__
    return names.get(name, f"a {name}")


def _sequence_difference(actual: Any, expected: list[Any] | tuple[Any, ...], where: str) -> Difference | None:
    if isinstance(actual, Record):
        actual = tuple(actual.as_dict().values())  # a NamedTuple where a tuple was asked for
    if not isinstance(actual, (list, tuple)):
        return Difference(where, expected, actual, _kinds(actual, expected))
    for index, (mine, wanted) in enumerate(zip(actual, expected, strict=False)):
        if (found := first_difference(mine, wanted, f"{where}[{index}]")) is not None:
            return found
    if len(actual) == len(expected):
        return None
    index = min(len(actual), len(expected))
    reason = f"it has {len(actual)} items, not {len(expected)}"
    mine = actual[index] if index < len(actual) else Missing()
    wanted = expected[index] if index < len(expected) else Missing()
    return Difference(f"{where}[{index}]", wanted, mine, reason)


class Missing:
    """Shown where one of two sequences has ended."""

    def __repr__(self) -> str:
        return "nothing"


def _dict_difference(actual: Any, expected: dict[Any, Any], where: str) -> Difference | None:
    if isinstance(actual, Record):
        actual = actual.as_dict()
    if not isinstance(actual, dict):
        return Difference(where, expected, actual, _kinds(actual, expected))
    for key, wanted in expected.items():
        if key not in actual:
            return Difference(f"{where}[{key!r}]", wanted, Missing(), f"the key {key!r} is missing")
        if (found := first_difference(actual[key], wanted, f"{where}[{key!r}]")) is not None:
            return found
    for key in actual:
        if key not in expected:
            return Difference(f"{where}[{key!r}]", Missing(), actual[key], f"the key {key!r} is too much")
    return None


def _array_difference(actual: Any, expected: Any, where: str) -> Difference | None:
    mine, wanted = as_array(actual), as_array(expected)
    if mine is None or wanted is None:
        return Difference(where, expected, actual, _kinds(actual, expected))
    if mine.shape != wanted.shape:
        return Difference(where, expected, actual, f"its shape is {mine.shape}, not {wanted.shape}")
    wrong = np.argwhere(~((mine == wanted) | ((mine != mine) & (wanted != wanted))))
    if not len(wrong):
        return None
    index = tuple(int(i) for i in wrong[0])
    spot = f"{where}[{', '.join(map(str, index))}]" if index else where
    return Difference(spot, wanted[index].item(), mine[index].item())


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """The value as an array of numbers, or None when it is not one (ragged lists, text, objects)."""
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, (int, float, list, tuple)):
        return None
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array if array.dtype.kind in "biuf" else None


def relative_error(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """‖actual − expected‖₂ / ‖expected‖₂ in float64; infinite where the answer is not finite."""
    mine, wanted = actual.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(mine).all():
        return float("inf")
    size, apart = _norm(wanted), _norm(mine - wanted)
    return apart / size if size else apart


def _norm(array: np.ndarray[Any, Any]) -> float:
    """‖array‖₂. Not np.linalg.norm: that calls BLAS, whose threads cost milliseconds to wake for a vector."""
    return float(np.sqrt(np.square(array).sum()))


def worst_row(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Index of the entry that is farthest off (the first one that is not finite, if there is one)."""
    mine, wanted = actual.astype(np.float64), expected.astype(np.float64)
    apart = np.where(np.isfinite(mine), np.abs(np.where(np.isfinite(mine), mine, 0.0) - wanted), np.inf)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))


def show(value: Any, limit: int = SHOWN) -> str:
    """A short text of a value: arrays by shape, dtype and first numbers; long texts cut with a mark."""
    if isinstance(value, np.ndarray):
        flat = value.reshape(-1)
        numbers = ", ".join(f"{number:.6g}" for number in flat[:6].tolist())
        more = ", …" if flat.size > 6 else ""
        return f"array {value.shape} {value.dtype}: [{numbers}{more}]"
    if isinstance(value, (list, tuple)) and len(value) > 12 and any(type(i) not in (int, str) for i in value):
        head = ", ".join(show(item, 40) for item in value[:6])
        return f"[{head}, … {len(value)} items]"[:limit]
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits out
        return f"{_article(value)} with a whole number too long to be written out"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
