"""The loop of the child process that holds llama.cpp: it steps a producer and obeys commands.

The process has llama.cpp to itself, so that an abort inside the library, a line on stderr or a long
prefill cannot touch the screen. Its stdout carries messages only; end of file on stdin ends it.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import IO, Protocol

import msgspec

from tutor.llama import messages as msg
from tutor.trace.events import TraceHeader, TraceRecord


class CommandRefused(Exception):
    """A command cannot be carried out; the message is a sentence and the run goes on."""


class Producer(Protocol):
    """Something that runs step by step and records what happened."""

    header: TraceHeader

    def step(self) -> bool:
        """Run one step; False when nothing is left to do."""
        ...

    def handle(self, command: msg.Submit | msg.Abort) -> None:
        """Carry out a command of its own; CommandRefused if it cannot."""
        ...

    def close(self) -> None: ...


class Channel:
    """Both ends of the pipe: commands come in through a reader thread, messages go out at once."""

    def __init__(self, commands: IO[bytes], messages: IO[bytes]) -> None:
        self._messages = messages
        self._queue: queue.Queue[msg.Command | str] = queue.Queue()
        threading.Thread(target=self._read, args=(commands,), daemon=True).start()

    def _read(self, commands: IO[bytes]) -> None:
        for line in commands:
            try:
                self._queue.put(msg.decode_command(line))
            except msgspec.DecodeError as error:
                self._queue.put(f"A command could not be read: {error}.")
        self._queue.put(msg.Stop())

    def send(self, message: msg.Message) -> None:
        self._messages.write(msg.encode(message))
        self._messages.flush()

    def record(self, record: TraceRecord) -> None:
        """A sink for `Recorder`."""
        self.send(msg.Recorded(record))

    def next_command(self, timeout: float | None) -> msg.Command | str | None:
        """The next command; None when none came in `timeout` seconds (None waits for ever)."""
        try:
            return self._queue.get(timeout=timeout) if timeout != 0 else self._queue.get_nowait()
        except queue.Empty:
            return None


class Loop:
    """Steps a producer at a pace until it is told to stop."""

    def __init__(self, producer: Producer, channel: Channel, *, pace: float, paused: bool) -> None:
        self._producer = producer
        self._channel = channel
        self._pace = pace
        self._paused = paused
        self._steps_due = 0
        self._done = False
        self._stopped = False
        self._status = ""
        self._next_at = 0.0

    def run(self) -> None:
        self._channel.send(msg.Started(self._producer.header))
        while not self._stopped:
            self._report()
            command = self._channel.next_command(self._timeout())
            if command is not None:
                self._obey(command)
            elif not self._done:
                self._step()
        self._producer.close()

    def _timeout(self) -> float | None:
        """How long to wait for a command before the next step: for ever when there is none to run."""
        if self._done or (self._paused and not self._steps_due):
            return None
        if self._steps_due:
            return 0
        return max(0.0, self._next_at - time.monotonic())

    def _report(self) -> None:
        status = "done" if self._done else "paused" if self._paused else "running"
        if status != self._status:
            self._status = status
            self._channel.send(msg.StatusChanged(status))

    def _step(self) -> None:
        if self._pace:
            self._next_at = time.monotonic() + 1.0 / self._pace
        self._steps_due = max(0, self._steps_due - 1)
        self._done = not self._producer.step()

    def _obey(self, command: msg.Command | str) -> None:
        match command:
            case str():
                self._channel.send(msg.Refused(command))
            case msg.Pause():
                self._paused = True
            case msg.Resume():
                self._paused = False
            case msg.StepOnce():
                self._paused = True
                self._steps_due += 1
            case msg.SetPace(steps_per_second):
                self._pace = max(0.0, steps_per_second)
                self._next_at = 0.0
            case msg.Stop():
                self._stopped = True
            case msg.Submit() | msg.Abort():
                try:
                    self._producer.handle(command)
                except CommandRefused as refusal:
                    self._channel.send(msg.Refused(str(refusal)))
                else:
                    self._done = False
