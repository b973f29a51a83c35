"""The journal on disk: one JSON line an event, appended and fsynced, safe against kill -9 and full disks.

File: `<data>/journal.jsonl`, first line `{"journal":"inference-tutor","schema":1}`. An append holds a
lock file, so several tutors may write at once. A line that a crash cut off was never acknowledged; it
is closed off by the next append, skipped when read, and reported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tutor.journal.events import SCHEMA_VERSION, AnyEvent, JournalHeader

_NAME = "inference-tutor"
_LOCK_SECONDS = 10.0
_HEADER_BYTES = 256  # the first line is far shorter

_encoder = msgspec.json.Encoder()
_decode_event = msgspec.json.Decoder(AnyEvent).decode
_decode_header = msgspec.json.Decoder(JournalHeader).decode


class JournalError(Exception):
    """The journal cannot be read or written; the message says why and what to do. Nothing was lost."""


class JournalContents(msgspec.Struct, frozen=True):
    """All events in the order they were written, and a sentence for each line that had to be skipped."""

    events: tuple[AnyEvent, ...]
    warnings: tuple[str, ...]


class Journal:
    """The journal in `folder` (the user's data folder without it). Opens nothing until it is used."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            from tutor.resources import data_dir

            folder = data_dir()
        self.folder = folder
        self.path = folder / "journal.jsonl"

    def append(self, event: AnyEvent) -> None:
        """Writes the event; it is on the disk when this returns. Raises JournalError."""
        line = _encoder.encode(event) + b"\n"
        with _explained(self.path, "written"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                self._append(line)

    def read(self) -> JournalContents:
        """Everything written so far; empty when there is no journal yet. Raises JournalError."""
        with _explained(self.path, "read"):
            data = self._bytes()
            if data and not data.endswith(b"\n"):
                # A writer may be in the middle of its line: look again when it is done. Where no lock
                # can be had (a read-only folder, a stopped writer), what was read is what there is.
                with suppress(OSError, JournalError), self._locked():
                    data = self._bytes()
        return self._parse(data)

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # filelock brings asyncio along; a tutor that only reads does not need it
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.folder / "journal.lock", timeout=_LOCK_SECONDS):
                yield
        except Timeout:
            raise JournalError(
                f"Another program has held {self.folder / 'journal.lock'} for {_LOCK_SECONDS:.0f} s. "
                "Close the other tutor and try again."
            ) from None

    def _append(self, line: bytes) -> None:
        created = not self.path.exists()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = self._prepare(fd)
            try:
                _write_all(fd, self._lead_in(fd, size) + line)
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, size)  # half a line would cost the next reader a warning
                raise
        finally:
            os.close(fd)
        if created:
            _sync_folder(self.folder)

    def _prepare(self, fd: int) -> int:
        """Checks the first line and returns the size to append at."""
        size = os.fstat(fd).st_size
        head = os.pread(fd, _HEADER_BYTES, 0)
        first, newline, _ = head.partition(b"\n")
        if newline:
            self._check_header(first)
        elif size:
            # The very first write was cut off: nothing in this file was ever acknowledged.
            if not _header_line().startswith(head) and head.strip(b"\0"):
                raise JournalError(_foreign(self.path))
            os.ftruncate(fd, 0)
            size = 0
        return size

    def _lead_in(self, fd: int, size: int) -> bytes:
        """What must stand before the new line: the header, or the end of a line that was cut off."""
        if size == 0:
            return _header_line()
        return b"" if os.pread(fd, 1, size - 1) == b"\n" else b"\n"

    def _check_header(self, line: bytes) -> None:
        try:
            header = _decode_header(line)
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise JournalError(_foreign(self.path)) from None
        if header.journal != _NAME:
            raise JournalError(_foreign(self.path))
        if header.schema > SCHEMA_VERSION:
            raise JournalError(
                f"The journal {self.path} was written by a newer tutor "
                f"(schema {header.schema}; this one knows {SCHEMA_VERSION}). "
                "Update with `pip install -U inference-tutor`, or set TUTOR_DATA to another folder."
            )

    def _parse(self, data: bytes) -> JournalContents:
        if b"\n" not in data:
            return JournalContents((), (_cut_off(self.path, 1),) if data else ())
        lines = data.removesuffix(b"\n").split(b"\n")
        self._check_header(lines[0])
        events: list[AnyEvent] = []
        warnings: list[str] = []
        for number, line in enumerate(lines[1:], 2):
            try:
                events.append(_decode_event(line))
            except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
                warnings.append(_cut_off(self.path, number))
        return JournalContents(tuple(events), tuple(warnings))


def _header_line() -> bytes:
    return _encoder.encode(JournalHeader(_NAME, SCHEMA_VERSION)) + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    """os.write may stop short, for instance just before the disk is full."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: Path) -> None:
    """A new file survives a power cut only when its folder entry is on the disk too."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _explained(path: Path, verb: str) -> Iterator[None]:
    """Turns the operating system's error into a sentence with a way out."""
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"The journal {path} cannot be {verb}: {error.strerror or error}. "
            "Free some space or make the folder writable, or set TUTOR_DATA to another folder."
        ) from error


def _cut_off(path: Path, number: int) -> str:
    return f"Line {number} of {path} is damaged or was cut off and is skipped; all other lines are read."


def _foreign(path: Path) -> str:
    return f"{path} is not a journal of this tutor. Move it away, or set TUTOR_DATA to another folder."
