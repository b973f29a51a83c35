"""The lab of *Tokens and tokenization*: your text in token boxes, and a word's merges one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tutor.labs.plain import tokens_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.trace import events as ev

NO_RANK = -1


class TokensProducer(StepProducer):
    """Tokenizes the text, the same text behind a space, then replays the merges of one word."""

    lab = "tokens"

    def steps(self) -> Iterator[None]:
        text = str(self.knobs["text"])
        self._tokenize(text)
        yield
        first = text.split(" ")[0]
        self.record(
            ev.Noted(f"The same word behind a space is another token: {first!r} and {' ' + first!r}.")
        )
        self._tokenize(first)
        self._tokenize(" " + first)
        yield
        word = str(self.knobs["word"])
        self.record(ev.Noted(f"The merges of {word!r}: the pair of lowest rank is joined first."))
        yield from self._replay(word)

    def _tokenize(self, text: str) -> None:
        ids = self.model.tokenize(text)
        self.record(ev.TextTokenized(text, tuple(ids), tuple(self.model.piece(i).hex() for i in ids)))

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
        self.record(ev.Noted(f"{len(pieces)} tokens, {verdict} llama.cpp's own tokenizer gives."))


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
            "Hello world, it is 2026. Caf\u00e9 \u6771\u4eac \U0001f469\u200d\U0001f680",
            "The text to tokenize.",
        ),
        Knob("word", "word", "text", " tokenization", "The word whose merges are replayed."),
    ),
    panels=("tokens", "merges"),
    plain=tokens_text,
)
