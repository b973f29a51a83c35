"""A lab's child process: `python -m tutor.labs.child`, the setup on the first line of stdin."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import IO

from tutor.labs.registry import get_kind
from tutor.labs.scenario import KnobError, Knobs, LabKind
from tutor.llama.errors import EngineError
from tutor.llama.messages import Failed, Setup, decode_setup
from tutor.llama.model import Model, find_model
from tutor.llama.worker import Channel, Loop, Producer
from tutor.serving.errors import ServingError
from tutor.trace.store import Sink


def make_producer(kind: LabKind, model: Model, knobs: Knobs, sink: Sink) -> Producer:
    """Import the lab's producer class by its dotted name and make it."""
    module, name = kind.producer.split(":")
    producer: Producer = getattr(importlib.import_module(module), name)(model, knobs, sink)
    return producer


def private_stdout() -> IO[bytes]:
    """The pipe to the owner; anything else that prints to stdout lands on stderr."""
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return messages


def run(setup: Setup, channel: Channel) -> int:
    try:
        kind = get_kind(setup.kind)
        knobs = kind.settings(setup.knobs)
        model = Model.load(find_model(setup.model), setup.n_gpu_layers)
        producer = make_producer(kind, model, knobs, channel.record)
        Loop(producer, channel, pace=setup.steps_per_second, paused=setup.paused).run()
    except (EngineError, ServingError, KnobError) as error:
        channel.send(Failed(str(error)))
        return 3
    return 0


def main() -> int:
    # The owner decides when this process ends: Ctrl-C in its terminal goes to the owner alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    messages = private_stdout()
    # A reader of its own: Python closes sys.stdin when it ends, which aborts while a thread waits on it.
    commands = os.fdopen(os.dup(0), "rb")
    setup = decode_setup(commands.readline())
    try:
        return run(setup, Channel(commands, messages))
    except BrokenPipeError:
        return 1  # the owner is gone; nobody is left to tell


if __name__ == "__main__":
    sys.exit(main())
