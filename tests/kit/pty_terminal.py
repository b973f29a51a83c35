"""A program in a real pseudo-terminal with an emulated screen."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 40.0

# Synchronized output: a program asks whether the terminal has it, and then marks begin and end of a frame.
ASKS, HAS_IT = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
FRAME_BEGINS, FRAME_ENDS = b"\x1b[?2026h", b"\x1b[?2026l"


class Terminal:
    """A program in a pty with an emulated screen."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.fd, worker = pty.openpty()
        ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(worker)
        self._worker = worker
        self.process = subprocess.Popen(
            command, stdin=worker, stdout=worker, stderr=worker, cwd=ROOT, env=env, start_new_session=True
        )

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    @property
    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self._worker))

    def until(self, condition: Callable[[], object]) -> None:
        """Read until the condition holds on a whole frame: a pty hands a frame over in parts."""
        deadline = time.monotonic() + SECONDS
        while self._amid_a_frame or not condition():
            assert time.monotonic() < deadline, f"the screen is:\n{self.text}"
            self._read(0.05)

    @property
    def _amid_a_frame(self) -> bool:
        begun, ended = self.raw.rfind(FRAME_BEGINS), self.raw.rfind(FRAME_ENDS)
        return begun > ended and self.process.poll() is None

    def _read(self, wait: float) -> None:
        if select.select([self.fd], [], [], wait)[0]:
            data = os.read(self.fd, 65536)
            self.raw += data
            if ASKS in data:
                os.write(self.fd, HAS_IT)
            self._stream.feed(data.replace(ASKS, b""))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def ended(self) -> int:
        self.until(lambda: self.process.poll() is not None)
        while select.select([self.fd], [], [], 0)[0]:
            self._read(0)
        return int(self.process.returncode)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)
        os.close(self._worker)
