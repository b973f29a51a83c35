"""Frames between judge and guest, and the messages in them.

A frame is four bytes of length (big-endian) and one MessagePack message. Each message from the judge
carries a fresh random nonce; the guest's runner repeats it in its answer. Whatever else reaches the pipe
(a print, a forged frame, an answer that comes after its call ended) does not carry the nonce that is
being waited for, and is reported as such instead of being read as an answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from tutor.grading.errors import ReplyError
from tutor.grading.values import Tree

MAX_TO_GUEST = 512 * 2**20
MAX_TO_JUDGE = 64 * 2**20
_HEADER = 4
_CHUNK = 1 << 20


class Load(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Import the learner's file, given as text; then limits apply. Answered by Done.

    hidden: folders that the learner's code must not read (see hiding.py).
    runtime: the Node.js that runs a TypeScript file; empty for Python.
    """

    nonce: bytes
    name: str
    source: str
    entry: tuple[str, ...]
    folder: str
    memory_mb: int
    cpu_seconds: int
    hidden: tuple[str, ...] = ()
    runtime: str = ""


class Call(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Call `name` of the learner's module, or of the object behind `handle`.

    keep: the result stays in the guest and a handle comes back.
    """

    nonce: bytes
    handle: int | None
    name: str
    args: list[Tree]
    kwargs: dict[str, Tree]
    keep: bool


class Get(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Read an attribute of the object behind `handle`, or the object itself when `name` is empty."""

    nonce: bytes
    handle: int
    name: str


class Put(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Store a value in the guest; a handle comes back."""

    nonce: bytes
    value: Tree


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The judge's reply to a CallBack. `error` is a built-in exception's name, or empty."""

    nonce: bytes
    value: Tree
    error: str = ""
    message: str = ""


class Done(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The value that a call returned. `seconds`: in the learner's code, callbacks and packing not counted."""

    nonce: bytes
    value: Tree
    seconds: float = 0.0


class Raised(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """The call raised. `kind` is the exception's class name, `lines` the learner's part of the traceback."""

    nonce: bytes
    kind: str
    message: str
    lines: list[str]
    where: str
    seconds: float = 0.0


class CallBack(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The learner's code calls a callable of the judge; `method` is empty for a plain function."""

    nonce: bytes
    target: int
    method: str
    args: list[Tree]
    kwargs: dict[str, Tree]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The guest is up and waits for its file; `notes` says which of its protections this system lacks.

    A guest that becomes another runtime says so once more when that is up."""

    nonce: bytes
    notes: list[str]


ToGuest = Load | Call | Get | Put | Answer
ToJudge = Done | Raised | CallBack | Hello

_to_guest = msgspec.msgpack.Decoder(ToGuest)
_to_judge = msgspec.msgpack.Decoder(ToJudge)
_encoder = msgspec.msgpack.Encoder()


def new_nonce() -> bytes:
    """Sixteen random bytes."""
    return os.urandom(16)


def encode(message: ToGuest | ToJudge) -> bytearray:
    """One frame, header included."""
    frame = bytearray(_HEADER)
    _encoder.encode_into(message, frame, _HEADER)  # behind the header: a body may be megabytes
    frame[:_HEADER] = (len(frame) - _HEADER).to_bytes(_HEADER, "big")
    return frame


def read_from_judge(fd: int) -> ToGuest:
    """Block until a whole frame is there; EOFError when the judge closed the pipe."""
    length = int.from_bytes(_read_exactly(fd, _HEADER), "big")
    return _to_guest.decode(_read_exactly(fd, length))


def _read_exactly(fd: int, count: int) -> bytearray:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        got = os.readv(fd, [view[filled : filled + _CHUNK]])
        if got == 0:
            raise EOFError
        filled += got
    return data


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Blocking write of a whole frame."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]


class FrameReader:
    """Collects bytes from the guest and gives out whole, valid messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def messages(self) -> Iterator[ToJudge]:
        """All whole messages so far; ReplyError for bytes that no runner writes."""
        while len(self._data) >= _HEADER:
            length = int.from_bytes(self._data[:_HEADER], "big")
            if length > MAX_TO_JUDGE:
                raise ReplyError("something that is no answer was written to the grader's pipe")
            if len(self._data) < _HEADER + length:
                return
            try:
                with memoryview(self._data) as whole, whole[_HEADER : _HEADER + length] as body:
                    message = _to_judge.decode(body)  # straight from the buffer: answers may be megabytes
            except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
                raise ReplyError("something that is no answer was written to the grader's pipe") from error
            del self._data[: _HEADER + length]
            yield message
