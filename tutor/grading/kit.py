"""What `exercises/ID/check.py` imports: the `check` decorator and the `Context` that every check gets.

    from tutor.grading.kit import Context, check

    @check("greedy ids", "ids equal llama.cpp's own greedy run, exact mode")
    def greedy(ctx: Context) -> None:
        prompt = ctx.model.tokenize("The capital of France is")
        expected = ctx.cached("greedy", lambda: ctx.model.greedy(prompt, 8))
        step = ctx.callback(lambda ids: ctx.model.next_logits(ids))
        ids = ctx.guest.call("generate", step, prompt, 8)
        ctx.misconception("one too few", lambda: ids == expected[:-1], "You stop one token early.")
        ctx.expect_equal(ids, expected, where="ids")

A check passes when it returns; it fails through one of the `expect` methods or through an exception in
the learner's code. See docs/exercises.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from tutor.grading import compare
from tutor.grading.compare import relative_error, show
from tutor.grading.failed import CheckFailed
from tutor.grading.protocols import Callback, Guest, Handle, References
from tutor.grading.recorder import MoveRecorder, table_rows
from tutor.grading.shrink import shorter, smaller_numbers, smallest
from tutor.grading.values import Record

if TYPE_CHECKING:
    from tutor.llama.reference import ReferenceModel

T = TypeVar("T")
Array = np.ndarray[Any, Any]

__all__ = [
    "CheckFailed",
    "Context",
    "Guest",
    "Handle",
    "MoveRecorder",
    "Record",
    "Refused",
    "check",
    "close",
    "relative_error",
    "shorter",
    "show",
    "smaller_numbers",
    "table_rows",
]


class Refused(Exception):
    """Raise this in a callback to give the learner's call a RuntimeError with this sentence."""


@dataclass(frozen=True)
class Check:
    """A check function with its name and one sentence on what is checked against what."""

    name: str
    against: str
    run: Callable[[Context], None]


def check(name: str, against: str) -> Callable[[Callable[[Context], None]], Check]:
    """Turn a function into a check. Checks run in the order in which the file defines them."""

    def make(function: Callable[[Context], None]) -> Check:
        return Check(name, against, function)

    return make


class Context:
    """What a check works with. One is made for each check; `seed` is the same for all checks of a run."""

    def __init__(
        self,
        *,
        name: str,
        seed: int,
        guest: Guest,
        references: References,
        model: Callable[[], ReferenceModel],
        folder: Path,
        file: str = "your file",
        language: str = "python",
    ) -> None:
        self.name = name
        self.seed = seed
        self.guest = guest
        self.language = language  # of the learner's file, for a message that quotes code
        # a stream of its own for each check: another check that draws more does not change this one
        self.rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self._references = references
        self._model = model
        self._folder = folder
        self._file = file
        self.recording: MoveRecorder | None = None  # the newest one: what a failure is replayed from
        self._misconceptions: dict[str, tuple[bool | Callable[[], bool], str | Callable[[], str]]] = {}

    @property
    def model(self) -> ReferenceModel:
        """The real model, loaded once a judge."""
        return self._model()

    def file(self, name: str) -> Path:
        """A file of the exercise folder; it has to be listed under `extra_files`."""
        return self._folder / name

    def cached(self, key: str, make: Callable[[], T]) -> T:
        """`make()` once for this model, exercise version, check.py, seed and key.

        The value must be plain (see Guest). Later calls get the stored copy, in memory or from disk, so put
        everything that it depends on (other than the seed) into the key. Do not change what you get.
        """
        value: T = self._references.get(key, make)
        return value

    def callback(self, function: Callable[..., Any], label: str = "") -> Callback:
        """Pass a function to the learner's code; it returns plain values. Its time is not the learner's."""
        return Callback(function, {}, {}, label or getattr(function, "__name__", "callback"))

    def remote(
        self,
        target: object,
        methods: Iterable[str],
        attrs: Mapping[str, Any] | None = None,
        label: str = "",
    ) -> Callback:
        """Pass an object: the learner sees `methods` of `target` and `attrs` (fixed plain values)."""
        bound = {name: getattr(target, name) for name in methods}
        return Callback(None, bound, attrs or {}, label or type(target).__name__)

    def recorder(self, block_size: int, num_blocks: int) -> MoveRecorder:
        """A fresh recording of block tables; if this check fails, the newest one can be replayed."""
        knobs = {"exercise": self._folder.name, "check": self.name}
        self.recording = MoveRecorder(self._file, knobs, block_size, num_blocks, self.seed)
        return self.recording

    def shrink(self, case: T, run: Callable[[T], None], simpler: Callable[[T], Iterable[T]]) -> None:
        """`run(case)`; if it fails for no mistake that has a name, fail with a smaller case that fails too.

        `run` makes the calls and the expects for one case, `simpler` gives smaller ones, the smallest first.
        Bounded in calls and time (see shrink.py), so that the learner gets something to try by hand at once.
        """
        declared = dict(self._misconceptions)

        def again(candidate: T) -> None:
            self._misconceptions = dict(
                declared
            )  # a mistake that another candidate looked like is not its own
            run(candidate)

        try:
            run(case)
        except CheckFailed as error:
            raise smallest(error, case, again, simpler) from error

    def misconception(
        self, ident: str, when: bool | Callable[[], bool], message: str | Callable[[], str]
    ) -> None:
        """Name a known mistake. If this check fails and `when` holds, its message is shown first.

        A `message` that takes long to make is given as a function, which is called only then.

        Declare it before the `expect` that it explains; in a loop, the same id replaces the one declared
        before. A `when` function that meets an answer of the wrong shape or type counts as False.
        """
        self._misconceptions[ident] = (when, message)

    def expect(
        self, condition: bool, sentence: str, *, expected: Any = None, actual: Any = None, where: str = ""
    ) -> None:
        """Fail with `sentence` unless `condition`."""
        if not condition:
            self.fail(sentence, expected=expected, actual=actual, where=where)

    def expect_equal(self, actual: Any, expected: Any, *, where: str = "result", note: str = "") -> None:
        """Deep equality; fails at the first difference. A list equals a tuple, 3 equals 3.0, True is not 1.

        `where` names the value for the learner ("ids"), `note` is a sentence added to the message.
        """
        found = compare.first_difference(actual, expected)
        if found is None:
            return
        spot = f"{where}{found.where}"
        reason = f" ({found.reason})" if found.reason else ""
        sentence = f"{spot} is {show(found.actual, 80)}, expected {show(found.expected, 80)}{reason}."
        self.fail(f"{sentence} {note}".strip(), expected=expected, actual=actual, where=spot)

    def expect_close(
        self,
        actual: Any,
        expected: Any,
        *,
        max_relative: float | None = None,
        rtol: float = 0.0,
        atol: float = 0.0,
        dtype: str | None = None,
        where: str = "result",
        note: str = "",
    ) -> None:
        """Same shape, finite, and within tolerance; the message states the tolerance.

        max_relative: ‖actual − expected‖₂ / ‖expected‖₂ of the whole array. Otherwise entry by entry:
        |actual − expected| ≤ atol + rtol·|expected|. dtype: the array must have this dtype.
        """
        wanted = np.asarray(expected)
        mine = compare.as_array(actual)
        detail = {"expected": wanted, "actual": actual, "where": where}
        if mine is None:
            self.fail(f"{where} is {show(actual, 80)}, expected numbers of shape {wanted.shape}.", **detail)
        if mine.shape != wanted.shape:
            self.fail(f"{where} has shape {mine.shape}, expected {wanted.shape}. {note}".strip(), **detail)
        if dtype is not None and str(mine.dtype) != dtype:
            self.fail(f"{where} has dtype {mine.dtype}, expected {dtype}. {note}".strip(), **detail)
        if not np.isfinite(mine).all():
            spot = f"{where}{list(compare.worst_row(mine, wanted))}" if mine.ndim else where
            sentence = f"{spot} is not a finite number (nan or infinity). {note}"
            self.fail(sentence.strip(), **{**detail, "where": spot})
        self._within(mine, wanted, max_relative, rtol, atol, where, note)

    def _within(
        self,
        mine: Array,
        wanted: Array,
        max_relative: float | None,
        rtol: float,
        atol: float,
        where: str,
        note: str,
    ) -> None:
        if max_relative is not None:
            error = relative_error(mine, wanted)
            if error <= max_relative:
                return
            measure = f"is off by {error:.2g} relative, allowed is {max_relative:.2g}"
        else:
            apart = np.abs(mine.astype(np.float64) - wanted.astype(np.float64))
            allowed = atol + rtol * np.abs(wanted.astype(np.float64))
            if bool((apart <= allowed).all()):
                return
            measure = f"is off by up to {float(apart.max()):.3g}, allowed is {atol:g} + {rtol:g}·|expected|"
        index = compare.worst_row(mine, wanted)
        spot = f"{where}[{', '.join(map(str, index))}]" if index else where
        sentence = f"{where} {measure}; farthest at {spot}: {mine[index]:.6g}, expected {wanted[index]:.6g}."
        self.fail(f"{sentence} {note}".strip(), expected=wanted, actual=mine, where=spot)

    def fields(self, value: Any, *names: str) -> tuple[Any, ...]:
        """The named fields of an answer that is a dataclass, NamedTuple, simple object or dict."""
        held = value.as_dict() if isinstance(value, Record) else value
        if not isinstance(held, dict):
            wanted = ", ".join(names)
            self.fail(f"Your function returned {show(value, 80)}; return an object with the fields {wanted}.")
        for name in names:
            if name not in held:
                has = ", ".join(map(str, held)) or "none"
                self.fail(f"The object that you returned has no field {name!r}; its fields are {has}.")
        return tuple(held[name] for name in names)

    def fail(
        self,
        sentence: str,
        *,
        expected: Any = None,
        actual: Any = None,
        where: str = "",
        trace: str = "",
        step: int | None = None,
    ) -> NoReturn:
        """End this check as failed. `trace` and `step`: a replay to open at a step."""
        named = self.explanation()
        raise CheckFailed(
            f"{named[1]}\n{sentence}" if named else sentence,
            expected="" if expected is None else show(expected),
            actual="" if actual is None and expected is None else show(actual),
            where=where,
            misconception=named[0] if named else "",
            trace=trace,
            step=step,
            recording=self.recording,
        )

    def explanation(self) -> tuple[str, str] | None:
        """(id, message) of the first declared misconception that holds, if one does."""
        for ident, (when, message) in self._misconceptions.items():
            if _holds(when):
                return ident, message() if callable(message) else message
        return None


def _holds(when: bool | Callable[[], bool]) -> bool:
    if not callable(when):
        return bool(when)
    try:
        return bool(when())
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        # an answer of another shape or type than the mistake would give
        return False


def close(actual: Any, variant: Any, max_relative: float = 1e-3) -> bool:
    """Whether an answer is this (wrong) variant: same shape and within `max_relative`. For misconceptions."""
    mine, other = compare.as_array(actual), compare.as_array(variant)
    if mine is None or other is None or mine.shape != other.shape:
        return False
    return relative_error(mine, other) <= max_relative
