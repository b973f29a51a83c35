"""Saves the trace of a running server, step by step; what was written stays readable if the server dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from tutor.trace.codec import TraceWriter
from tutor.trace.events import TraceHeader, TraceRecord


class TraceFile:
    """A sink for `Server`. Each life of the engine is a trace of its own: the second is NAME.2.jsonl.

    A file that cannot be written is named once through `on_problem`, and the server goes on without it.
    """

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._on_problem = on_problem
        self._broken = False
        self._lives = 0
        self._stream: IO[bytes] | None = None
        self._writer: TraceWriter | None = None

    def __call__(self, header: TraceHeader, records: list[TraceRecord]) -> None:
        if self._broken:
            return
        try:
            if not records:
                self._begin(self._path, header)
            elif self._writer is not None:
                for record in records:
                    self._writer(record)
                self._writer.flush()
        except OSError as error:
            self._broken = True
            self._on_problem(f"Cannot write the trace {self._path}: {error.strerror}. No more is saved.")

    def _begin(self, path: Path, header: TraceHeader) -> None:
        self.close()
        self._lives += 1
        name = path.name if self._lives == 1 else f"{path.stem}.{self._lives}{path.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.with_name(name).open("wb")
        self._writer = TraceWriter(self._stream, header)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._writer = None
