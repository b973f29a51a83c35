"""What the judge and its client say to each other: frames as in rpc.py, over the judge's stdin and stdout.

`run` is the number that the client gave a run; it tells a late message of an earlier run from one of this.
"""

from __future__ import annotations

import msgspec

from tutor.grading.verdict import CheckResult, Verdict

HEADER = 4


class RunCheck(msgspec.Struct, frozen=True, tag=True):
    """Grade the file at `path`. `exercises`: another folder of exercises (empty: the shipped ones).

    call_seconds: a limit of one call instead of the exercise's own.
    hidden: folders that the submission must not read, beside those of the exercises and references.
    """

    run: int
    exercise: str
    path: str
    seed: int
    exercises: str = ""
    call_seconds: float | None = None
    hidden: tuple[str, ...] = ()


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Stop this run if it is the one going on; its guest is ended and Refused comes back."""

    run: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The judge takes requests. Its model may still be loading."""


class CheckStarted(msgspec.Struct, frozen=True, tag=True):
    """Check `index` (from 0) of `total` runs now."""

    run: int
    name: str
    index: int
    total: int


class CheckDone(msgspec.Struct, frozen=True, tag=True):
    """One check has its result."""

    run: int
    result: CheckResult
    index: int
    total: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The run is over and here is its verdict."""

    run: int
    verdict: Verdict


class Refused(msgspec.Struct, frozen=True, tag=True):
    """There is no verdict; `cancelled` says whether that was asked for."""

    run: int
    sentence: str
    cancelled: bool = False


ToJudge = RunCheck | Cancel
FromJudge = Ready | CheckStarted | CheckDone | Finished | Refused

requests = msgspec.msgpack.Decoder(ToJudge)
replies = msgspec.msgpack.Decoder(FromJudge)
_encoder = msgspec.msgpack.Encoder()


def frame(message: ToJudge | FromJudge) -> bytes:
    """Length (four bytes, big-endian) and message."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER, "big") + body


def take_frame(data: bytearray) -> bytes | None:
    """Remove the first whole frame from `data` and return its body; None when it is not all there yet."""
    if len(data) < HEADER:
        return None
    length = int.from_bytes(data[:HEADER], "big")
    if len(data) < HEADER + length:
        return None
    body = bytes(data[HEADER : HEADER + length])
    del data[: HEADER + length]
    return body
