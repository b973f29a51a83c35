"""What a worker process and its owner say to each other: JSON Lines both ways, one message a line."""

from __future__ import annotations

import msgspec

from tutor.trace.events import TraceHeader, TraceRecord

# --- from the owner to the worker ---------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Add a request. `prompt` is plain text; the worker's model tokenizes it."""

    request_id: str
    label: str
    prompt: str
    max_tokens: int


class Abort(msgspec.Struct, frozen=True, tag=True):
    request_id: str


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Finish the current step, then wait."""


class Resume(msgspec.Struct, frozen=True, tag=True):
    pass


class StepOnce(msgspec.Struct, frozen=True, tag=True):
    """Run one step, then wait."""


class SetPace(msgspec.Struct, frozen=True, tag=True):
    """At most this many steps a second (0: as fast as the engine goes)."""

    steps_per_second: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the process after the current step."""


Command = Submit | Abort | Pause | Resume | StepOnce | SetPace | Stop

# --- from the worker to its owner ---------------------------------------------------------------


class Started(msgspec.Struct, frozen=True, tag=True):
    header: TraceHeader


class Recorded(msgspec.Struct, frozen=True, tag=True):
    record: TraceRecord


class StatusChanged(msgspec.Struct, frozen=True, tag=True):
    """`status`: running, paused or done (nothing left to run; a new request may still be submitted)."""

    status: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A command could not be carried out; the worker goes on."""

    sentence: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot go on and ends after this message."""

    sentence: str


Message = Started | Recorded | StatusChanged | Refused | Failed


class Setup(msgspec.Struct, frozen=True):
    """The first line that a worker reads: which lab to run, how, and on which model."""

    kind: str
    knobs: dict[str, str | int | float | bool]
    model: str | None = None
    steps_per_second: float = 0.0
    paused: bool = False
    n_gpu_layers: int = 0


def encode(message: Command | Message | Setup) -> bytes:
    return msgspec.json.encode(message) + b"\n"


_commands = msgspec.json.Decoder(Command)
_messages = msgspec.json.Decoder(Message)
_setups = msgspec.json.Decoder(Setup)


def decode_command(line: bytes) -> Command:
    command: Command = _commands.decode(line)
    return command


def decode_message(line: bytes) -> Message:
    message: Message = _messages.decode(line)
    return message


def decode_setup(line: bytes) -> Setup:
    return _setups.decode(line)
