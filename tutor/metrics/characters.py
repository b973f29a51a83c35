"""Where tokens end inside characters: tokens are bytes, and a character may have several."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Character:
    """One character of a text. `parts`: its UTF-8 bytes, in one piece for each token that holds some."""

    text: str
    parts: tuple[bytes, ...]

    @property
    def is_cut(self) -> bool:
        """Does a token end inside it?"""
        return len(self.parts) > 1


def characters(text: str, pieces: Sequence[bytes]) -> tuple[Character, ...]:
    """The characters of `text`, each cut where the tokens' bytes `pieces` end.

    Raises ValueError when the pieces together are not the text: a tokenizer may drop or normalise something.
    """
    data = text.encode()
    if b"".join(pieces) != data:
        raise ValueError("The tokens' bytes are not the bytes of the text.")
    ends, end = [], 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    found, start = [], 0
    for char in text:
        stop = start + len(char.encode())
        cuts = [start, *(end for end in ends if start < end < stop), stop]
        parts = tuple(data[a:b] for a, b in itertools.pairwise(cuts))
        found.append(Character(char, parts))
        start = stop
    return tuple(found)
