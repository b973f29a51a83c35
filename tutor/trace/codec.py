"""Traces on disk and on pipes: JSON Lines, the header first, then one record a line (readable by jq)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO

import msgspec

from tutor.trace.events import SCHEMA_VERSION, TraceHeader, TraceRecord
from tutor.trace.store import TraceStore

_encoder = msgspec.json.Encoder()
_header_decoder = msgspec.json.Decoder(TraceHeader)
_record_decoder = msgspec.json.Decoder(TraceRecord)


class TraceError(Exception):
    """A trace cannot be read or written; the message is a sentence for the user."""


def encode_header(header: TraceHeader) -> bytes:
    return _encoder.encode(header) + b"\n"


def encode_record(record: TraceRecord) -> bytes:
    return _encoder.encode(record) + b"\n"


def decode_header(line: bytes) -> TraceHeader:
    """Raises TraceError for anything but a header of a schema that this version reads."""
    try:
        loose = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise TraceError(f"This is not a trace: its first line is not JSON ({error}).") from error
    schema = loose.get("schema") if isinstance(loose, dict) else None
    if not isinstance(schema, int):
        raise TraceError("This is not a trace: its first line has no schema version.")
    if schema > SCHEMA_VERSION:
        raise TraceError(
            f"This trace has schema {schema}; this version reads up to {SCHEMA_VERSION}. "
            "Upgrade inference-tutor to open it."
        )
    try:
        return _header_decoder.decode(line)
    except msgspec.ValidationError as error:
        raise TraceError(f"The trace's header is damaged: {error}.") from error


def decode_record(line: bytes) -> TraceRecord:
    """Raises msgspec.DecodeError (or its ValidationError) for a damaged line."""
    return _record_decoder.decode(line)


def read_trace(path: Path) -> TraceStore:
    """Read a saved trace. A cut end is named in `store.warnings`; other damage is a TraceError."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise TraceError(f"Cannot read the trace {path}: {error.strerror}.") from error
    if not lines:
        raise TraceError(f"The trace {path} is empty.")
    store = TraceStore(decode_header(lines[0]))
    for number, line in enumerate(lines[1:], start=2):
        try:
            record = decode_record(line)
        except msgspec.DecodeError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                store.warnings.append(
                    f"The trace was cut in the middle of line {number}; the {len(store)} whole records "
                    "before it are shown."
                )
                break
            raise TraceError(f"Line {number} of {path} is damaged: {error}.") from error
        if record.seq != len(store):
            raise TraceError(
                f"Line {number} of {path} holds record {record.seq}, expected {len(store)}: "
                "records are missing."
            )
        store.append(record)
    return store


class TraceWriter:
    """Writes a trace line by line, so that what was written stays readable if the process dies."""

    def __init__(self, stream: IO[bytes], header: TraceHeader) -> None:
        self._stream = stream
        self._stream.write(encode_header(header))

    def __call__(self, record: TraceRecord) -> None:
        self._stream.write(encode_record(record))

    def flush(self) -> None:
        self._stream.flush()


def write_trace(path: Path, store: TraceStore) -> None:
    """Save a store; raises TraceError with the reason when the folder is read-only or the disk full."""
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            writer = TraceWriter(stream, store.header)
            for record in store.records:
                writer(record)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise TraceError(f"Cannot write the trace {path}: {error.strerror}.") from error
