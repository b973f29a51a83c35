"""Codecs of saved sequences: fewer bytes for what `kv.save` returns, at a stated loss.

    none      the bytes as they are
    turbo4    4 bits an element of K and V, and a 16-bit scale a head vector: 4.25 bits with heads of 64
    turbo3    3 bits, 3.25 with the scale
    turbo2    2 bits, 2.25 with the scale
    k4v2      4 bits for K, 2 for V; any pair of 1 to 4. K deserves the bits: a wrong score moves the whole
              attention, a wrong value only itself

Packed: magic, bits of K, bits of V, head size, length of the frame; the frame (see blob.py); then every
layer's K and every layer's V as `turbo.Quantiser.pack` writes them.
"""

from __future__ import annotations

import re
import struct

from tutor.llama.blob import (
    BF16,
    ELEMENT_BYTES,
    F16,
    BlobError,
    Layout,
    Rows,
    cut_frame,
    elements,
    from_float32,
    parse,
    parse_frame,
    rebuild,
    to_float32,
)
from tutor.llama.turbo import Quantiser
from tutor.serving.tier_types import Codec, CodecError

HEADER = struct.Struct("<4sBBHI")
MAGIC = b"KVt1"
HEAD_DIM = 64  # of the bundled model
NAMES = re.compile(r"turbo([1-4])|k([1-4])v([1-4])")


class PlainCodec:
    """Keeps the bytes as they are."""

    name = "none"
    lossy = False

    def encode(self, blob: bytes) -> bytes:
        return blob

    def decode(self, data: bytes) -> bytes:
        return data


class TurboCodec:
    """Rotates and quantises each head vector of K and V; positions and layout are kept exactly."""

    lossy = True

    def __init__(self, k_bits: int, v_bits: int, head_dim: int = HEAD_DIM) -> None:
        """Raises ValueError for bits outside 1 to 4 or a head size that is no power of two from 8 on."""
        self.name = f"turbo{k_bits}" if k_bits == v_bits else f"k{k_bits}v{v_bits}"
        self.head_dim = head_dim
        self._quantisers = {"K": Quantiser(head_dim, k_bits), "V": Quantiser(head_dim, v_bits)}

    @property
    def bits_per_element(self) -> float:
        """Of K and V on average, scales included; the frame adds about 12 bytes a token."""
        return sum(quantiser.bits_per_element for quantiser in self._quantisers.values()) / 2

    def encode(self, blob: bytes) -> bytes:
        """Raises CodecError: another layout, another type than bf16 and f16, a value that is not finite."""
        try:
            layout = parse(blob)
            frame = cut_frame(blob, layout)
            bits = (self._quantisers[kind].bits for kind in "KV")
            pieces = [HEADER.pack(MAGIC, *bits, self.head_dim, len(frame)), frame]
            for rows in layout.rows:
                values = to_float32(elements(blob, rows), rows.type_id)
                pieces.append(self._quantisers[rows.kind].pack(values.reshape(self._vectors(rows), -1)))
        except (BlobError, ValueError) as error:
            raise CodecError(f"{self.name} cannot pack this: {error}") from error
        return b"".join(pieces)

    def decode(self, data: bytes) -> bytes:
        """A blob of the original length and layout, for `kv.restore`. Raises CodecError."""
        try:
            frame, packed = self._split(data)
            layout = parse_frame(frame)
            sizes = [self._packed_bytes(rows) for rows in layout.rows]
            if sum(sizes) != len(packed):
                raise ValueError(f"{len(packed)} bytes of K and V where {sum(sizes)} belong")
            return self._restore(frame, layout, packed, sizes)
        except (BlobError, ValueError, struct.error) as error:
            raise CodecError(f"{self.name} cannot unpack this: {error}") from error

    def _restore(self, frame: memoryview, layout: Layout, packed: memoryview, sizes: list[int]) -> bytes:
        contents: list[bytes] = []
        at = 0
        for rows, size in zip(layout.rows, sizes, strict=True):
            values = self._quantisers[rows.kind].unpack(packed[at : at + size], self._vectors(rows))
            contents.append(from_float32(values, rows.type_id).tobytes())
            at += size
        return rebuild(frame, layout, contents)

    def _split(self, data: bytes) -> tuple[memoryview, memoryview]:
        magic, k_bits, v_bits, head_dim, length = HEADER.unpack_from(data)
        expected = (MAGIC, self._quantisers["K"].bits, self._quantisers["V"].bits, self.head_dim)
        if (magic, k_bits, v_bits, head_dim) != expected:
            raise ValueError("it was packed otherwise")
        rest = memoryview(data)[HEADER.size :]
        return rest[:length], rest[length:]

    def _packed_bytes(self, rows: Rows) -> int:
        return self._quantisers[rows.kind].packed_bytes(self._vectors(rows))

    def _vectors(self, rows: Rows) -> int:
        """Head vectors in these rows. Raises ValueError when rows are not made of whole ones."""
        if rows.type_id not in (F16, BF16):
            raise ValueError(f"ggml type {rows.type_id} is neither bf16 nor f16")
        per_row, rest = divmod(rows.row_bytes, ELEMENT_BYTES * self.head_dim)
        if rest or not per_row:
            raise ValueError(f"rows of {rows.row_bytes} bytes are not whole heads of {self.head_dim}")
        return rows.count * per_row


def make_codec(name: str, head_dim: int = HEAD_DIM) -> Codec:
    """The codec of that name. Raises ValueError when there is none."""
    if name == PlainCodec.name:
        return PlainCodec()
    found = NAMES.fullmatch(name)
    if found is None:
        raise ValueError(
            f"There is no codec {name!r}; there are none, turbo1 to turbo4, and k4v2 and its like."
        )
    same, k_bits, v_bits = found.groups()
    return TurboCodec(int(same or k_bits), int(same or v_bits), head_dim)
