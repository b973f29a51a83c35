"""Server-sent events from bytes, fast enough for a load generator.

Events end with an empty line; several `data:` lines of one event are joined by a line end; lines that begin
with a colon are comments. [WHATWG HTML, server-sent events]
"""

from __future__ import annotations


class EventParser:
    """Feed it what arrives; it gives back the data of every event that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + received).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
