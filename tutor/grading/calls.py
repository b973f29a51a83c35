"""Calls into the learner's code: the `Guest` and `Handle` that a check uses, over one guest process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tutor.grading import rpc
from tutor.grading.errors import NoAnswer, ReplyError
from tutor.grading.kit import Refused
from tutor.grading.process import Control, GuestProcess
from tutor.grading.protocols import Callback
from tutor.grading.values import NotPlain, Packer, Tree, Unpacker
from tutor.llama.errors import BadBatch, EngineMisuse, NoSpace

_USUAL = (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError)


class LearnerError(NoAnswer):
    """The learner's code raised. `lines` is its part of the traceback, `where` is `file:line`."""

    def __init__(self, raised: rpc.Raised, call: str) -> None:
        super().__init__(raised.kind, raised.message)
        self.kind = raised.kind
        self.message = raised.message
        self.lines = raised.lines
        self.where = raised.where
        self.call = call


class Clock:
    """The deadlines of one run: `call_seconds` of the guest's own time a call, `total_seconds` of all calls.

    Calls include their callbacks here, so that a loop around a callback ends, too. What a check computes
    outside calls (references, the first time) is not the learner's and does not count.
    """

    def __init__(self, call_seconds: float, total_seconds: float) -> None:
        self.call_seconds = call_seconds
        self.total_seconds = total_seconds
        self.code_seconds = 0.0  # in the learner's code alone, as the guest reports it
        self._left = total_seconds
        self._end = 0.0
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._end = time.monotonic() + self._left
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._left = self._end - time.monotonic()

    def deadline(self, left: float) -> tuple[float, float, bool]:
        """(time to stop at, the limit to name, whether that is the limit of the whole run)."""
        now = time.monotonic()
        if self._end < now + left:
            return self._end, self.total_seconds, True
        return now + left, self.call_seconds, False


class GuestHandle:
    """An object in the guest."""

    def __init__(self, calls: GuestCalls, number: int, label: str) -> None:
        self._calls = calls
        self.number = number
        self.label = label

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._calls.request(self, method, args, kwargs, keep=False)

    def new(self, method: str, *args: Any, **kwargs: Any) -> GuestHandle:
        made: GuestHandle = self._calls.request(self, method, args, kwargs, keep=True)
        return made

    def get(self, attribute: str) -> Any:
        return self._calls.fetch(self, attribute)

    def value(self) -> Any:
        return self._calls.fetch(self, "")


class GuestCalls:
    """All calls of one run into one guest. `broken` is set once the guest cannot be used any more."""

    def __init__(self, process: GuestProcess, clock: Clock, counts: Counter[str], control: Control | None):
        self.process = process
        self.broken = False
        self.now = "nothing"
        self._clock = clock
        self._counts = counts
        self._control = control
        self._callables: list[Callback] = []
        self._packer = Packer(self._pack_special)
        self._unpacker = Unpacker(self._unpack_special)

    def load(self, message: rpc.Load) -> None:
        """Import the learner's file in the guest. A runtime of its own starts first, and not on its time."""
        self.now = f"the import of {message.name}"
        if message.runtime:
            self.process.wait_ready(message, self._control)
        with self._clock:
            self._serve(message, "", sent=bool(message.runtime))

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.request(None, name, args, kwargs, keep=False)

    def new(self, name: str, *args: Any, **kwargs: Any) -> GuestHandle:
        made: GuestHandle = self.request(None, name, args, kwargs, keep=True)
        return made

    def put(self, value: Any) -> GuestHandle:
        stored: GuestHandle = self._exchange(rpc.Put(rpc.new_nonce(), self._packer.pack(value)))
        return stored

    def fetch(self, handle: GuestHandle, attribute: str) -> Any:
        label = f"{handle.label}.{attribute}" if attribute else handle.label
        self.now = f"reading {label}"
        return self._exchange(rpc.Get(rpc.new_nonce(), handle.number, attribute))

    def request(
        self,
        handle: GuestHandle | None,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        keep: bool,
    ) -> Any:
        """Call a function or method; the value, or a handle when it is kept."""
        label = name if handle is None else f"{handle.label}.{name}"
        self._counts[label] += 1
        outer, self.now = self.now, f"call {self._counts[label]} of {label}"
        message = rpc.Call(
            rpc.new_nonce(),
            None if handle is None else handle.number,
            name,
            [self._packer.pack(value) for value in args],
            {key: self._packer.pack(value) for key, value in kwargs.items()},
            keep,
        )
        result = self._exchange(message, name)
        self.now = outer if outer.startswith("call") else self.now
        return result

    def expect_silence(self) -> None:
        """After a check: anything unread came from code that should have ended with its call."""
        if self.broken:
            return
        self.broken = True
        if self.process.has_unread():
            raise ReplyError(f"Your code went on after {self.now} had returned (a thread?)")
        self.broken = False

    def _exchange(self, message: rpc.Load | rpc.Call | rpc.Get | rpc.Put, label: str = "") -> Any:
        """Send and serve callbacks until the answer is there. Anything else leaves the guest broken."""
        with self._clock:
            return self._serve(message, label)

    def _serve(
        self, message: rpc.Load | rpc.Call | rpc.Get | rpc.Put, label: str, *, sent: bool = False
    ) -> Any:
        was_broken, self.broken = self.broken, True
        if was_broken:
            raise ReplyError("The process of your code has ended already")
        left = self._clock.call_seconds
        if not sent:
            _, left = self._timed(left, lambda end: self.process.send(message, *end, self._control))
        while True:
            reply, left = self._timed(left, lambda end: self.process.receive(*end, self._control))
            if reply.nonce != message.nonce:
                raise ReplyError(f"During {self.now} something other than its answer came over the pipe")
            if isinstance(reply, rpc.CallBack):
                left = self._reply(self._answer(reply), left)
                continue
            self.broken = False
            self._clock.code_seconds += _seconds(reply)
            if isinstance(reply, rpc.Raised):
                raise LearnerError(reply, label)
            assert isinstance(reply, rpc.Done)
            return self._unpacker.unpack(reply.value)

    def _reply(self, answer: rpc.Answer, left: float) -> float:
        return self._timed(left, lambda end: self.process.send(answer, *end, self._control))[1]

    def _timed(self, left: float, action: Callable[[tuple[float, float, bool]], Any]) -> tuple[Any, float]:
        """Only waiting for the guest counts against its call; what the judge computes does not."""
        started = time.monotonic()
        result = action(self._clock.deadline(left))
        return result, left - (time.monotonic() - started)

    def _answer(self, request: rpc.CallBack) -> rpc.Answer:
        """Run a callback. Wrong arguments raise in the learner's code, not in the check."""
        nonce = request.nonce
        if not 0 <= request.target < len(self._callables):
            raise ReplyError("A call to something that was never handed over came over the pipe")
        target = self._callables[request.target]
        function = target.methods.get(request.method) if request.method else target.function
        if function is None:
            raise ReplyError("A call to something that was never handed over came over the pipe")
        args = [self._unpacker.unpack(tree) for tree in request.args]
        kwargs = {name: self._unpacker.unpack(tree) for name, tree in request.kwargs.items()}
        self.broken = False  # the callback may call into the guest again
        try:
            value = self._packer.pack(function(*args, **kwargs))
        except (Refused, EngineMisuse, NoSpace, BadBatch) as error:
            return rpc.Answer(nonce, None, "RuntimeError", str(error))
        except NotPlain as error:
            return rpc.Answer(nonce, None, "TypeError", f"{target.label} gave {error}")
        except _USUAL as error:
            message = error.args[0] if isinstance(error, KeyError) and error.args else error
            return rpc.Answer(nonce, None, _nearest(error), f"{target.label}: {message}")
        finally:
            self.broken = True
        return rpc.Answer(nonce, value)

    def _pack_special(self, value: Any) -> Tree | None:
        if isinstance(value, GuestHandle):
            return ["h", value.number]
        if isinstance(value, Callback):
            self._callables.append(value)
            number = len(self._callables) - 1
            attrs = {name: self._packer.pack(item) for name, item in value.attrs.items()}
            return ["p", number, list(value.methods) if value.function is None else None, attrs, value.label]
        return None

    def _unpack_special(self, tree: list[Tree]) -> GuestHandle:
        if len(tree) == 2 and tree[0] == "h" and type(tree[1]) is int:
            return GuestHandle(self, tree[1], self.now.rpartition(" ")[2])
        raise ReplyError("A value that is not plain came over the pipe")


def _seconds(reply: rpc.ToJudge) -> float:
    """A figure for the report only: whoever forges it changes no verdict."""
    claimed = reply.seconds if isinstance(reply, (rpc.Done, rpc.Raised)) else 0.0
    return claimed if 0.0 <= claimed < float("inf") else 0.0


def _nearest(error: Exception) -> str:
    return next((kind.__name__ for kind in _USUAL if isinstance(error, kind)), "RuntimeError")
