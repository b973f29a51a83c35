"""Facts of this lesson, measured with the tokenizer of the bundled model."""

from __future__ import annotations

import itertools
from typing import Any

from tutor.llama.reference import ReferenceModel

WORD = "strawberry"
SENTENCE = "The model reads numbers, not words."  # costs as much as the emoji
ASTRONAUT = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"
# (text, how the table shows it)
COSTS = (
    (SENTENCE, None),
    ("31415926", None),
    ("HELLO", None),
    (" hello", "␣hello"),
    ("The cat sat on the mat.", None),
    ("Die Katze saß auf der Matte.", None),
    ("Il gatto era seduto sul tappeto.", None),
    ("猫坐在垫子上。", None),
)
PROSE = (
    "First, rules cut the text into small pieces. A word takes the one space before it along. "
    "Each digit stands alone. Merges never cross these cuts."
)
Ranks = dict[tuple[bytes, bytes], int]


def measure(model: ReferenceModel) -> dict[str, Any]:
    """Ids, token counts and the merge replay of one word."""
    ranks = {pair: rank for rank, pair in enumerate(model.merges())}
    vocabulary = set(model.vocab_bytes())
    prose = len(PROSE.encode()) / len(model.tokenize(PROSE))
    return {
        "merges": len(ranks),
        "tea_id": model.tokenize(" tea")[0],
        "hello_id": model.tokenize("hello")[0],
        "space_hello_id": model.tokenize(" hello")[0],
        "upper_hello_tokens": len(model.tokenize("HELLO")),
        "nihao_tokens": len(model.tokenize("你好")),
        "byte_tokens": sum(bytes([value]) in vocabulary for value in range(256)),
        "merge_lines": _merge_lines(WORD.encode(), ranks),
        "leftmost": " ".join(piece.decode() for piece in _leftmost(WORD.encode(), ranks)),
        "strawberry_tokens": len(model.tokenize(WORD)),
        "space_strawberry_tokens": len(model.tokenize(f" {WORD}")),
        "cost_lines": [_cost_line(model, text, shown or text) for text, shown in COSTS],
        "sentence": SENTENCE,
        "astronaut_bytes": len(ASTRONAUT.encode()),
        "astronaut_tokens": len(model.tokenize(ASTRONAUT)),
        "prose_bytes_per_token": round(prose, 1),
    }


def _cost_line(model: ReferenceModel, text: str, shown: str) -> str:
    return f"{len(text.encode()):>7}{len(model.tokenize(text)):>8}   {shown}"


def _candidates(pieces: list[bytes], ranks: Ranks) -> list[tuple[int, int]]:
    pairs = itertools.pairwise(pieces)
    return [(ranks[pair], index) for index, pair in enumerate(pairs) if pair in ranks]


def _join(pieces: list[bytes], index: int) -> list[bytes]:
    return [*pieces[:index], pieces[index] + pieces[index + 1], *pieces[index + 2 :]]


def _merge_lines(word: bytes, ranks: Ranks) -> list[str]:
    """One line a merge: its rank, then the pieces after it."""
    pieces = [bytes([value]) for value in word]
    lines = [f"{'':>7}   " + " ".join(piece.decode() for piece in pieces)]
    while found := _candidates(pieces, ranks):
        rank, index = min(found)
        pieces = _join(pieces, index)
        lines.append(f"{rank:>7,}   " + " ".join(piece.decode() for piece in pieces))
    return lines


def _leftmost(word: bytes, ranks: Ranks) -> list[bytes]:
    """What the wrong rule gives: join the first pair that can be joined."""
    pieces = [bytes([value]) for value in word]
    while found := _candidates(pieces, ranks):
        pieces = _join(pieces, found[0][1])
    return pieces
