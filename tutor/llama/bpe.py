"""The GPT-2 byte alphabet: how a vocabulary of bytes is written as printable text in a model file.

Each of the 256 bytes has one printable character: 188 stand for themselves, the others are moved to U+0100
and up in order (Radford et al. 2019, https://github.com/openai/gpt-2/blob/master/src/encoder.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache


@cache
def byte_of() -> dict[str, int]:
    """Character of the alphabet → the byte it stands for (256 entries)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(moved)})
    return table


def to_bytes(text: str) -> bytes:
    """Text in the byte alphabet → the bytes it stands for; other text → its UTF-8 (control tokens)."""
    table = byte_of()
    try:
        return bytes(table[character] for character in text)
    except KeyError:
        return text.encode("utf-8")


def vocabulary_bytes(tokens: Iterable[bytes]) -> list[bytes]:
    """The file's token texts (UTF-8) → the bytes of each token, by id."""
    return [to_bytes(token.decode("utf-8")) for token in tokens]


def read_merges(lines: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """The file's merge lines ("left right") → pairs of bytes, in order of rank.

    The alphabet holds no space, so the one space of a line separates the two sides.
    """
    pairs = []
    for line in lines:
        left, _, right = line.decode("utf-8").partition(" ")
        pairs.append((to_bytes(left), to_bytes(right)))
    return pairs
