"""Saved sequences, opened: where the bytes of `kv.save` hold positions, K rows and V rows.

Layout, little-endian, as llama.cpp's `llama_kv_cache::state_write` leaves it (llama-cpp-python 0.3.36):

    u32 magic, i32 slot, u32 parts          parts: 1 in shared mode, n_seq_max in exact mode
    per part: u32 cells; nothing more when 0
        per cell: i32 position, u32 owners, i32 slot      one owner, since one slot is saved: 12 bytes
        u32 transposed, u32 layers
        per layer: i32 ggml type, u64 bytes a row, then one row a cell        K
        per layer: i32 ggml type, u64 bytes a row, then one row a cell        V

Everything but the rows is the *frame*: about 750 bytes and 12 a token. A codec keeps the frame as it is and
packs the rows. Cells stand in the order of the cache, which need not be that of their positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tutor.llama.errors import EngineError

HEADER = struct.Struct("<IiI")
COUNT = struct.Struct("<I")
KINDS = struct.Struct("<II")
LAYER = struct.Struct("<iQ")
CELL_BYTES = 12
F16, BF16 = 1, 30  # ggml_type numbers, see context.KV_TYPES
ELEMENT_BYTES = 2

Buffer = bytes | bytearray | memoryview
Raw = NDArray[np.uint16]
Floats = NDArray[np.float32]


class BlobError(EngineError):
    """Bytes that are not a saved sequence of the layout above."""


@dataclass(frozen=True, slots=True)
class Rows:
    """K or V of one layer: `count` rows of `row_bytes`, from byte `start` of the blob on."""

    kind: Literal["K", "V"]
    layer: int
    type_id: int
    count: int
    row_bytes: int
    start: int

    @property
    def num_bytes(self) -> int:
        return self.count * self.row_bytes

    @property
    def end(self) -> int:
        return self.start + self.num_bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """What a blob holds and where. `positions`: int32 [tokens], in the order of the rows."""

    slot: int
    positions: NDArray[np.int32]
    rows: tuple[Rows, ...]
    num_bytes: int

    @property
    def num_tokens(self) -> int:
        return len(self.positions)

    @property
    def row_bytes(self) -> int:
        """Bytes of all K and V rows together."""
        return sum(rows.num_bytes for rows in self.rows)


class _Reader:
    """Walks a blob, or a frame: there the rows are left out, but counted."""

    def __init__(self, data: Buffer, has_rows: bool) -> None:
        self._data = data
        self._has_rows = has_rows
        self._at = 0
        self.place = 0  # where this would be in the whole blob

    def take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise _broken(f"it ends after {len(self._data)} bytes, in the middle of a field")
        part = memoryview(self._data)[self._at : end]
        self._at, self.place = end, self.place + size
        return part

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def skip_rows(self, size: int) -> None:
        if self._has_rows:
            self.take(size)
        else:
            self.place += size

    def check_end(self) -> None:
        if self._at != len(self._data):
            raise _broken(f"{len(self._data) - self._at} bytes follow its end")


def parse(blob: Buffer) -> Layout:
    """The layout of a saved sequence. Raises BlobError when it is another one than expected."""
    return _walk(_Reader(blob, True))


def parse_frame(frame: Buffer) -> Layout:
    """The layout of the blob that `frame` was cut from. Raises BlobError."""
    return _walk(_Reader(frame, False))


def _walk(reader: _Reader) -> Layout:
    _, slot, parts = reader.unpack(HEADER)
    positions: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
    rows: list[Rows] = []
    for _ in range(parts):
        (count,) = reader.unpack(COUNT)
        if count == 0:
            continue
        positions.append(_positions(reader, count))
        transposed, layers = reader.unpack(KINDS)
        if transposed:
            raise _broken("V is transposed; save from a context with flash attention")
        rows += _layers(reader, count, layers)
    reader.check_end()
    return Layout(slot, np.concatenate(positions), tuple(rows), reader.place)


def _positions(reader: _Reader, count: int) -> NDArray[np.int32]:
    cells = np.frombuffer(reader.take(count * CELL_BYTES), "<i4").reshape(count, 3)
    if not (cells[:, 1] == 1).all():
        raise _broken("a cell does not have exactly one owner")
    if (cells[:, 0] < 0).any():
        raise _broken("a position is negative")
    return cells[:, 0].astype(np.int32)


def _layers(reader: _Reader, count: int, layers: int) -> Iterator[Rows]:
    kinds: tuple[Literal["K", "V"], ...] = ("K", "V")
    for kind in kinds:
        for layer in range(layers):
            type_id, row_bytes = reader.unpack(LAYER)
            found = Rows(kind, layer, type_id, count, row_bytes, reader.place)
            reader.skip_rows(found.num_bytes)
            yield found


def cut_frame(blob: Buffer, layout: Layout) -> bytes:
    """All bytes of the blob that are not rows, in order."""
    view = memoryview(blob)
    return b"".join(view[start:end] for start, end in _outside(layout))


def rebuild(frame: Buffer, layout: Layout, contents: Sequence[bytes]) -> bytes:
    """The blob of a frame: `contents` are the bytes of each of `layout.rows`. Raises BlobError."""
    if [len(content) for content in contents] != [rows.num_bytes for rows in layout.rows]:
        raise BlobError("These rows are not those of the frame.", "Give all, in the order of the layout.")
    view = memoryview(frame)
    pieces: list[bytes | memoryview] = []
    taken = 0
    for (start, end), content in zip(_outside(layout), [*contents, b""], strict=True):
        pieces += (view[taken : taken + end - start], content)
        taken += end - start
    return b"".join(pieces)


def _outside(layout: Layout) -> Iterator[tuple[int, int]]:
    """Start and end of each piece of the frame: before the first rows, between rows, after the last."""
    edges = [0, *(edge for rows in layout.rows for edge in (rows.start, rows.end)), layout.num_bytes]
    return zip(edges[::2], edges[1::2], strict=True)


def elements(blob: Buffer, rows: Rows) -> Raw:
    """A view of the rows' 16-bit elements, [count, elements a row].

    Raises BlobError when they are neither bf16 nor f16.
    """
    if rows.type_id not in (F16, BF16):
        raise BlobError(
            f"K and V are saved as ggml type {rows.type_id}.", "Only caches of bf16 and f16 can be opened."
        )
    shape = (rows.count, rows.row_bytes // ELEMENT_BYTES)
    return np.ndarray(shape, "<u2", buffer=blob, offset=rows.start)


def to_float32(raw: Raw, type_id: int) -> Floats:
    """Values of 16-bit elements, of the same shape."""
    if type_id == F16:
        return raw.view(np.float16).astype(np.float32)
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)


def from_float32(values: Floats, type_id: int) -> Raw:
    """The nearest 16-bit elements; a tie goes to the even one."""
    if type_id == F16:
        return values.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)  # 1 where the element kept would be odd: then a half is rounded up
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    return rounded.astype(np.uint16)


def _broken(reason: str) -> BlobError:
    return BlobError(f"This is not a saved sequence: {reason}.", "Save it again with this version.")
