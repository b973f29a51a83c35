"""The lab of *Tokens and tokenization*: your text in token boxes, and a word's merges one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tutor.labs.plain import tokens_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.trace import events as ev

NO_RANK = -1
MAX_LISTED = 4  # ids in a sentence
ASTRONAUT = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"


class TokensProducer(StepProducer):
    """Tokenizes a text and another beside it, a word behind a space, then replays the merges of one word."""

    lab = "tokens"

    def steps(self) -> Iterator[None]:
        text = str(self.knobs["text"])
        mine = self._tokenize(text)
        yield
        other = str(self.knobs["other"])
        if other:
            count = len(self._tokenize(other))
            self.record(ev.Noted(f"Your text: {_tokens(len(mine))}. Beside it, {other}: {_tokens(count)}."))
            yield
        yield from self._behind_a_space(text)
        word = str(self.knobs["word"])
        self.record(ev.Noted(f"The merges of {word!r}: the pair of lowest rank is joined first."))
        yield from self._replay(word)

    def _behind_a_space(self, text: str) -> Iterator[None]:
        first = next(iter(text.split()), "")
        if first:
            alone, behind = self._tokenize(first), self._tokenize(" " + first)
            self.record(
                ev.Noted(f"{first!r} is {_ids(alone)}. Behind a space, {' ' + first!r} is {_ids(behind)}.")
            )
            yield

    def _tokenize(self, text: str) -> list[int]:
        """Record the tokens of a text; returns their ids."""
        ids = self.model.tokenize(text)
        self.record(ev.TextTokenized(text, tuple(ids), tuple(self.model.piece(i).hex() for i in ids)))
        return ids

    def _replay(self, word: str) -> Iterator[None]:
        """Byte-level BPE: join the adjacent pair of lowest rank until no pair is in the table."""
        ranks = {pair: rank for rank, pair in enumerate(self.model.merges())}
        pieces = [bytes([byte]) for byte in word.encode()]
        self.record(ev.PiecesMerged(tuple(piece.hex() for piece in pieces), ("", ""), NO_RANK))
        while True:
            pairs = list(itertools.pairwise(pieces))
            found = (
                min((ranks[pair], i) for i, pair in enumerate(pairs) if pair in ranks)
                if any(pair in ranks for pair in pairs)
                else None
            )
            if found is None:
                break
            yield
            rank, i = found
            left, right = pieces[i], pieces[i + 1]
            pieces[i : i + 2] = [left + right]
            self.record(ev.PiecesMerged(tuple(p.hex() for p in pieces), (left.hex(), right.hex()), rank))
        self._compare(word, pieces)

    def _compare(self, word: str, pieces: list[bytes]) -> None:
        """Say whether our merges end where llama.cpp's tokenizer does (it splits a text into words first)."""
        theirs = [self.model.piece(i) for i in self.model.tokenize(word)]
        verdict = "the same as" if theirs == pieces else "not the same as"
        why = "" if theirs == pieces else ": it cuts a text into words first"
        said = f"{_tokens(len(pieces))}, {verdict} llama.cpp's own tokenizer gives{why}."
        self.record(ev.Noted(said))


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"


def _ids(ids: list[int]) -> str:
    """The ids by number, or how many there are when they are many."""
    if len(ids) > MAX_LISTED:
        return _tokens(len(ids))
    return f"token{'' if len(ids) == 1 else 's'} {' '.join(map(str, ids))}"


KIND = LabKind(
    id="tokens",
    title="Watch a text become tokens",
    phenomenon="One emoji costs as much as several words, and a token can be half a character.",
    producer="tutor.labs.tokens:TokensProducer",
    knobs=(
        Knob(
            "text",
            "text",
            "text",
            "Hello world, it is 2026. Caf\u00e9 \u6771\u4eac",
            "Your text.",
        ),
        Knob("other", "beside it", "text", ASTRONAUT, "Another text to compare its cost with."),
        Knob("word", "word", "text", " tokenization", "The word whose merges are replayed."),
    ),
    panels=("tokens", "cost", "merges"),
    plain=tokens_text,
)
