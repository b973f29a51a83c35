"""The judge's end of a guest: starts it, exchanges messages under deadlines, drains its output, ends it."""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tutor.grading import folders, rpc, sandbox
from tutor.grading.errors import JudgeError, NoAnswer, ReplyError

START_SECONDS = 30.0
KEPT_OUTPUT = 64 * 1024
_PIPE_BYTES = 1 << 20  # what Linux grants any user; large arrays then cross in fewer turns
_SLICE = 0.1  # seconds between looks at a guest whose pipe an heir of it may hold open
_STARTER = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tutor.grading.guest import main; main(sys.argv[2:])"
)


class GuestGone(NoAnswer):
    """The guest's process ended, or closed its pipe, before it answered. `str()` says how it ended."""


class GuestTimeout(NoAnswer):
    """No answer in time. `limit` is the limit in seconds, `total` whether it is the one of the whole run."""

    def __init__(self, limit: float, total: bool) -> None:
        super().__init__(limit, total)
        self.limit = limit
        self.total = total


class Control(Protocol):
    """Something readable that can stop a run: `on_readable` raises to do so."""

    def fileno(self) -> int: ...

    def on_readable(self) -> None: ...


class Output:
    """What the learner's code printed: the first KEPT_OUTPUT bytes, and how much more there was."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        self._kept += data[: KEPT_OUTPUT - len(self._kept)]

    def text(self) -> str:
        text = self._kept.decode("utf-8", errors="replace")
        more = self._total - len(self._kept)
        return f"{text}\n… {more:,} more bytes were printed and not kept." if more else text


def _module_path() -> list[str]:
    """Where the guest finds modules: where this process does; the tutor's own folder comes last."""
    root = str(Path(__file__).resolve().parents[2])
    return [*(path for path in sys.path if os.path.isabs(path) and path != root), root]


def _widen(pipe: int) -> None:
    """A larger pipe, where the system has one to give."""
    if sys.platform == "linux":
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return  # the user has many large pipes already; the usual size works, too


class GuestProcess:
    """One guest. It is started at once and answers its first message after `wait_ready`.

    family: the process ids of all guests that this process keeps. With it, `close` also ends every other
    child that the kernel hands to this process (see `sandbox.adopt_orphans`); only the judge passes it.
    """

    def __init__(
        self,
        namespaces: bool = True,
        scratch: Path | None = None,
        family: Callable[[], set[int]] | None = None,
    ) -> None:
        self._family = family
        self._folder = tempfile.mkdtemp(prefix="guest-", dir=scratch)
        guest_in, self._to_guest = os.pipe()
        self._from_guest, guest_out = os.pipe()
        arguments = [json.dumps(_module_path()), str(guest_in), str(guest_out), "1" if namespaces else "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-u", "-X", "utf8", "-c", _STARTER, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            env=sandbox.guest_environment(self._folder),
            pass_fds=(guest_in, guest_out),
            start_new_session=True,
        )
        os.close(guest_in)
        os.close(guest_out)
        self.output = Output()
        self.notes: list[str] = []
        self._reader = rpc.FrameReader()
        self._inbox: list[rpc.ToJudge] = []
        self._closed = False
        self._selector = selectors.DefaultSelector()
        for fd in self._read_ends():
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ)
        os.set_blocking(self._to_guest, False)
        _widen(self._to_guest)
        _widen(self._from_guest)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._closed and self._process.poll() is None

    def _read_ends(self) -> tuple[int, int, int]:
        assert self._process.stdout is not None and self._process.stderr is not None
        return self._from_guest, self._process.stdout.fileno(), self._process.stderr.fileno()

    def wait_ready(self, message: rpc.Load | None = None, control: Control | None = None) -> None:
        """Block until the guest says hello; JudgeError when it cannot start.

        message: sent first, for a guest that becomes another runtime with it; that says hello once more.
        """
        deadline = time.monotonic() + START_SECONDS
        try:
            if message is not None:
                self.send(message, deadline, START_SECONDS, True, control)
            reply = self.receive(deadline, START_SECONDS, True, control)
        except (GuestGone, GuestTimeout, ReplyError) as error:
            last = self.output.text().strip().rpartition("\n")[2]
            raise JudgeError(f"The process for your code does not start: {last or error}.") from error
        if isinstance(reply, rpc.Hello):
            self.notes += reply.notes
        else:
            self._inbox.insert(0, reply)  # it could not become the runtime: this is its answer

    def send(
        self, message: rpc.ToGuest, deadline: float, limit: float, total: bool, control: Control | None
    ) -> None:
        """Write a whole frame, draining the guest's output meanwhile."""
        view = memoryview(rpc.encode(message))
        while view:
            try:
                view = view[os.write(self._to_guest, view[: 1 << 20]) :]
            except BlockingIOError:
                self._selector.register(self._to_guest, selectors.EVENT_WRITE)
                try:
                    self._pump(deadline, limit, total, control)
                finally:
                    self._selector.unregister(self._to_guest)
            except BrokenPipeError:
                raise GuestGone(self.ending()) from None

    def receive(self, deadline: float, limit: float, total: bool, control: Control | None) -> rpc.ToJudge:
        """The next message; GuestTimeout(limit, total) after the deadline, GuestGone, or ReplyError."""
        while not self._inbox:
            self._pump(deadline, limit, total, control)
        return self._inbox.pop(0)

    def has_unread(self) -> bool:
        """Whether the guest sent something that nobody waits for."""
        if not self._inbox:
            self._drain(self._from_guest)
        return bool(self._inbox)

    def _pump(self, deadline: float, limit: float, total: bool, control: Control | None) -> None:
        """One wait: read whatever is there, notice the end of the guest, of the time and of the run."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise GuestTimeout(limit, total)
        if control is not None:
            self._selector.register(control.fileno(), selectors.EVENT_READ)
        try:
            events = self._selector.select(min(left, _SLICE))
        finally:
            if control is not None:
                self._selector.unregister(control.fileno())
        for key, _ in events:
            if control is not None and key.fd == control.fileno():
                control.on_readable()
            elif key.fd != self._to_guest and not self._drain(key.fd) and key.fd == self._from_guest:
                raise GuestGone(self.ending())
        if not events and self._process.poll() is not None and not self._drain_all():
            raise GuestGone(self.ending())

    def _drain_all(self) -> bool:
        """After the process ended: an heir may hold the pipes open, so do not wait for end of file."""
        for fd in self._read_ends():
            if fd in self._selector.get_map():
                self._drain(fd)
        return bool(self._inbox)

    def _drain(self, fd: int) -> bool:
        """Read what is there now; False at end of file."""
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return True
        if not data:
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        elif fd == self._from_guest:
            self._reader.feed(data)
            self._inbox.extend(self._reader.messages())
        else:
            self.output.feed(data)
        return bool(data)

    def ending(self) -> str:
        """How the process ended, as the middle of a sentence about "your code"."""
        try:
            code = self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return "closed the pipe over which it answers"
        if code >= 0:
            return f"ended the process (exit code {code})"
        name = signal.Signals(-code).name
        why = {
            "SIGKILL": " (CPU time used up, or killed)",
            "SIGABRT": " (memory limit, or an abort)",  # V8 aborts when its heap is full
            "SIGSEGV": " (memory limit, or endless recursion)",
        }
        return f"was ended by signal {name}{why.get(name, '')}"

    def close(self) -> None:
        """End the whole group, reap it and keep its last output. Its folder stays: see `remove_folder`."""
        if self._closed:
            return
        self._closed = True
        sandbox.end_group(self._process.pid)
        self._process.wait()
        if self._family is not None:
            sandbox.sweep_orphans(self._family() - {self._process.pid})
        for fd in self._read_ends()[1:]:
            if fd in self._selector.get_map():
                self._drain(fd)  # one read takes all that a pipe can hold
        self._selector.close()
        os.close(self._to_guest)
        os.close(self._from_guest)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def remove_folder(self) -> None:
        """Remove what the guest left on the disk. That takes as long as the disk does."""
        folders.remove(self._folder)
