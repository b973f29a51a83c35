"""What the kernel knows about a server's connections: how many there were, and which were used after a pause.

`ss` tells for each socket how long ago it last sent and received something. Looked at often, that shows every
connection that idled and was then used again. Linux only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from types import TracebackType

EVERY = 0.25  # seconds between two looks
SENT, RECEIVED = re.compile(r"lastsnd:(\d+)"), re.compile(r"lastrcv:(\d+)")


class Connections:
    """Use it in a `with` block. `idle`: seconds without a byte either way that count as a pause."""

    def __init__(self, port: int, idle: float) -> None:
        self.num_seen = 0
        self.num_resumed = 0
        self._port, self._idle = port, idle
        self._before: dict[str, tuple[float, float]] = {}
        self._looked = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @staticmethod
    def available() -> bool:
        return shutil.which("ss") is not None

    def __enter__(self) -> Connections:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(EVERY):
            self._look()

    def _look(self) -> None:
        """Two lines a socket: addresses, then figures."""
        command = ["ss", "-tinH", "state", "established", f"sport = :{self._port}"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        now = {}
        since, self._looked = time.monotonic() - self._looked, time.monotonic()
        for addresses, figures in zip(lines[::2], lines[1::2], strict=False):
            peer, sent, received = addresses.split()[-1], SENT.search(figures), RECEIVED.search(figures)
            if not sent or not received:
                continue  # nothing was sent yet
            heard = int(received[1]) / 1e3
            now[peer] = min(int(sent[1]) / 1e3, heard), heard
            if peer in self._before:
                quiet, heard_before = self._before[peer]
                # only a byte from the client is a use: a slow answer also ends a silence
                self.num_resumed += heard < heard_before and quiet + since > self._idle
            else:
                self.num_seen += 1
        self._before = now
