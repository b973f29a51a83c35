"""Checks of `bpe_encode` and `decode`: compared with llama.cpp's own tokenizer, token for token."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tutor.grading.kit import Context, check, shorter

Ranks = dict[tuple[bytes, bytes], int]
Pieces = list[bytes]
Pick = Callable[[list[tuple[int, int]]], int]

SCRIPTS = (  # first and last code point; each is one kind of pre-split piece
    (0x4E00, 0x9FA5), (0x3041, 0x3096), (0xAC00, 0xD7A3), (0x0430, 0x044F), (0x03B1, 0x03C9),
    (0x00E0, 0x00F6),
)  # fmt: skip
EMOJI = ((0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6C5))
JOINER = "\N{ZERO WIDTH JOINER}"
SIGNS = "!?.,:;-+*/=<>()[]{}#%&@^~|"
TOY: Ranks = {(b"a", b"a"): 0, (b"aa", b"aa"): 1, (b"l", b"o"): 9, (b"o", b"w"): 4, (b"lo", b"w"): 2}


def _bpe(pieces: Pieces, ranks: Ranks, pick: Pick) -> Pieces:
    """Join neighbours until none is in `ranks`; `pick` chooses among (rank, position) pairs."""
    pieces = list(pieces)
    while len(pieces) > 1:
        pairs = itertools.pairwise(pieces)
        found = [(ranks[pair], at) for at, pair in enumerate(pairs) if pair in ranks]
        if not found:
            break
        at = pick(found)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces


def _bytes(word: bytes) -> Pieces:
    return [bytes([value]) for value in word]


def _lowest(found: list[tuple[int, int]]) -> int:
    return min(found)[1]


def _leftmost(found: list[tuple[int, int]]) -> int:
    return found[0][1]


def _highest(found: list[tuple[int, int]]) -> int:
    return max(found, key=lambda pair: (pair[0], -pair[1]))[1]


def _by_character(word: bytes, ranks: Ranks) -> Pieces:
    return _bpe([letter.encode() for letter in word.decode("utf-8")], ranks, _lowest)


def _matching(ctx: Context, words: list[bytes]) -> list[tuple[bytes, bytes, int]]:
    """The model's merges whose result occurs in one of the words, with their ranks; others cannot matter."""
    parts = {
        word[start:end]
        for word in words
        for start in range(len(word))
        for end in range(start + 2, len(word) + 1)
    }
    merges = enumerate(ctx.model.merges())
    return [(left, right, rank) for rank, (left, right) in merges if left + right in parts]


def _is_pieces(answer: Any) -> bool:
    return isinstance(answer, list | tuple) and all(isinstance(piece, bytes) for piece in answer)


def _expect_pieces(ctx: Context, answer: Any, word: bytes) -> None:
    """A list of bytes that joins to the word."""
    where = f"bpe_encode({word!r})"
    ctx.misconception(
        "str-pieces",
        lambda: isinstance(answer, list | tuple) and any(isinstance(piece, str) for piece in answer),
        "é is two bytes; merge bytes, not characters. Every piece has to be a bytes object.",
    )
    ctx.misconception(
        "int-pieces",
        lambda: isinstance(answer, list | tuple) and any(isinstance(piece, int) for piece in answer),
        "word[i] is an int. Take word[i : i + 1] for one byte as a bytes object.",
    )
    ctx.expect(_is_pieces(answer), f"{where} has to be a list of bytes.", actual=answer, where=where)
    ctx.expect_equal(b"".join(answer), word, where=f"the joined pieces of {where}")


def _compare_pieces(ctx: Context, words: list[bytes], key: str) -> None:
    """Every word against llama.cpp's tokens; the first word that differs explains the mistake."""

    def make() -> tuple[list[tuple[bytes, bytes, int]], list[Pieces]]:
        ids = [ctx.model.tokenize(word.decode("utf-8")) for word in words]
        return _matching(ctx, words), [[ctx.model.piece(token) for token in each] for each in ids]

    table, expected = ctx.cached(key, make)
    ranks = {(left, right): rank for left, right, rank in table}
    sent = ctx.guest.put(ranks)

    def run(word: bytes) -> None:
        """One word; a part of one is in no list of llama.cpp's, so its pieces follow from the merges."""
        pieces = known[word] if word in known else _bpe(_bytes(word), ranks, _lowest)
        answer = ctx.guest.call("bpe_encode", word, sent)
        _expect_pieces(ctx, answer, word)
        if list(answer) != list(pieces):
            _explain(ctx, list(answer), word, words, ranks)
            ctx.expect_equal(list(answer), pieces, where=f"tokens of {word!r}", note=_by_hand(word, ranks))

    known = dict(zip(words, expected, strict=True))
    for word in known:
        ctx.shrink(word, run, _parts)


def _parts(word: bytes) -> Iterator[bytes]:
    """The word without some of its characters."""
    return (text.encode() for text in shorter(word.decode("utf-8"), least=1))


def _by_hand(word: bytes, ranks: Ranks) -> str:
    """The merges that can matter for a word, where they are few enough to try by hand."""
    ends = range(len(word) + 1)
    parts = {word[start:end] for start in ends for end in ends[start + 1 :]}
    found = sorted((rank, pair) for pair, rank in ranks.items() if pair[0] + pair[1] in parts)
    if len(found) > 6:
        return ""
    listed = ", ".join(f"{left!r}+{right!r} (rank {rank})" for rank, (left, right) in found)
    return f"Try it by hand: the merges for it are {listed or 'none'}."


def _explain(ctx: Context, answer: Pieces, word: bytes, words: list[bytes], ranks: Ranks) -> None:
    def differing() -> int:
        start = [(_bytes(each), each) for each in words]
        return sum(_bpe(one, ranks, _leftmost) != _bpe(one, ranks, _lowest) for one, _ in start)

    if answer == _bpe(_bytes(word), ranks, _leftmost):
        ctx.misconception(
            "leftmost",
            True,
            "You merge the first pair you can; BPE merges the lowest-rank pair anywhere "
            f"(differs on {differing()} of {len(words)} words).",
        )
    ctx.misconception(
        "highest",
        lambda: answer == _bpe(_bytes(word), ranks, _highest),
        "You join the pair with the highest rank. Rank 0 is the strongest merge: take the lowest.",
    )
    ctx.misconception(
        "characters",
        lambda: answer == _by_character(word, ranks),
        f"{word.decode('utf-8', 'replace')!r} has characters of several bytes; merge bytes, not characters.",
    )
    ctx.misconception(
        "stopped-early",
        lambda: _bpe(answer, ranks, _lowest) != answer,
        "Two neighbours of your result are still in the table: re-scan after each merge.",
    )


@check("edge cases", "empty word, one byte, unknown pairs and a cut character, with a small table")
def edge_cases(ctx: Context) -> None:
    letter = bytes([int(ctx.rng.integers(0x61, 0x7B))])
    cut = "café".encode()[:-1]
    for word in (b"", letter, b"xyz", cut):
        answer = ctx.guest.call("bpe_encode", word, TOY)
        _expect_pieces(ctx, answer, word)
        ctx.expect_equal(list(answer), _bpe(_bytes(word), TOY, _lowest), where=f"bpe_encode({word!r})")


@check("order of merges", "equal pairs, overlapping pairs and ranks out of order, with a small table")
def order_of_merges(ctx: Context) -> None:
    words = [b"aaaa", b"aaa", b"low", b"lo", b"a" * int(ctx.rng.integers(5, 12)), b"xaay"]
    for word in words:
        answer = ctx.guest.call("bpe_encode", word, TOY)
        _expect_pieces(ctx, answer, word)
        pieces = list(answer)
        ctx.misconception(
            "one-pass",
            lambda pieces=pieces, word=word: (
                word == b"aaaa" and pieces in ([b"aa", b"aa"], [b"aa", b"a", b"a"])
            ),
            "'aaaa': re-scan after each merge. The new pieces aa and aa are a pair of the table too.",
        )
        ctx.misconception(
            "overlap",
            lambda pieces=pieces, word=word: word == b"aaa" and pieces == [b"a", b"aa"],
            "'aaa': the pair occurs twice and overlaps itself. Join the leftmost one.",
        )
        ctx.misconception(
            "leftmost",
            lambda pieces=pieces, word=word: word == b"low" and pieces in ([b"low"], [b"lo", b"w"]),
            "'low': the pair o w has the lower rank, so it is joined before l o.",
        )
        ctx.expect_equal(pieces, _bpe(_bytes(word), TOY, _lowest), where=f"bpe_encode({word!r})")


@check("words", "tokens equal llama.cpp's own for 300 words of a text")
def words(ctx: Context) -> None:
    text = ctx.file("words.txt").read_text(encoding="utf-8")
    distinct = sorted(set(re.findall(r"[^\W\d_]+", text)))
    chosen = ctx.rng.choice(distinct, 300, replace=False)
    spaces = ctx.rng.random(300) < 0.7
    spaced = [f" {word}" if space else str(word) for word, space in zip(chosen, spaces, strict=True)]
    _compare_pieces(ctx, [word.encode() for word in spaced], "words")


@check("digits, spaces, signs, emoji and scripts", "tokens equal llama.cpp's own for 200 pieces")
def other_pieces(ctx: Context) -> None:
    makers = (_digit, _blank, _signs, _emoji, _script, _script)
    pieces = [makers[index % len(makers)](ctx.rng) for index in range(200)]
    _compare_pieces(ctx, [piece.encode() for piece in pieces], "other pieces")


def _digit(rng: np.random.Generator) -> str:
    return str(rng.integers(10))


def _blank(rng: np.random.Generator) -> str:
    return str(rng.choice([" ", "\n", "\t"])) * int(rng.integers(1, 20))


def _signs(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(SIGNS), int(rng.integers(1, 6))))


def _emoji(rng: np.random.Generator) -> str:
    first, last = EMOJI[rng.integers(len(EMOJI))]
    pictures = [chr(rng.integers(first, last + 1)) for _ in range(rng.integers(1, 4))]
    return (JOINER if rng.random() < 0.5 else "").join(pictures)


def _script(rng: np.random.Generator) -> str:
    first, last = SCRIPTS[rng.integers(len(SCRIPTS))]
    space = " " if rng.random() < 0.3 else ""
    return space + "".join(chr(rng.integers(first, last + 1)) for _ in range(rng.integers(1, 8)))


@check("decode", "the text of pieces that split characters, and of a cut character at the end")
def decode(ctx: Context) -> None:
    text = "".join(maker(ctx.rng) for maker in (_script, _blank, _emoji, _digit, _script))
    data = text.encode()
    cuts = sorted({0, len(data), *ctx.rng.integers(1, len(data), 6).tolist()})
    split = [data[start:end] for start, end in itertools.pairwise(cuts)]
    tail = "a€".encode()[:-1]
    for pieces in (split, _bytes(data), [], [tail], [b"ok ", tail[:2], tail[2:]]):
        answer = ctx.guest.call("decode", pieces)
        expected = b"".join(pieces).decode("utf-8", errors="replace")
        alone = "".join(piece.decode("utf-8", errors="replace") for piece in pieces)
        ctx.misconception(
            "piece-by-piece",
            lambda answer=answer, alone=alone, right=expected: answer == alone != right,
            "\ufffd: join bytes first, decode once.",
        )
        ctx.misconception(
            "dropped-bytes",
            lambda answer=answer, right=expected: answer == right.replace("\ufffd", "") != right,
            "The cut character is gone without a trace: invalid bytes become U+FFFD.",
        )
        ctx.expect_equal(answer, expected, where=f"decode of {len(pieces)} pieces")
