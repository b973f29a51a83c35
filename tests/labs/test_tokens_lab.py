"""The tokens lab on the real model: tokens are bytes, an emoji is cut inside, merges go by lowest rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_kit import at, last, record, text, views

from tutor.labs.plain import tokens_text
from tutor.labs.tokens import ASTRONAUT
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.metrics.characters import characters
from tutor.trace.store import TraceStore
from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.base import line_width

SENTENCE = "The model reads numbers, not words."
MIXED = "Größe 東京 naïve Привет " + ASTRONAUT
Run = Callable[..., TraceStore]


@pytest.fixture(scope="module")
def run(model: Model) -> Run:
    return partial(record, model, "tokens")


@pytest.mark.parametrize("own", [SENTENCE, MIXED, "a  b\n\tc", "31415926", "½ ﷽ \U0001f1e9\U0001f1ea", " "])
def test_the_bytes_of_all_pieces_are_the_text(run: Run, own: str) -> None:
    for tokens in last(run(text=own)).tokens:
        assert b"".join(tokens.pieces).decode() == tokens.text


def test_one_emoji_costs_as_much_as_a_sentence_and_is_cut_inside(run: Run) -> None:
    sentence, emoji = last(run(text=SENTENCE)).tokens[:2]
    assert emoji.text == ASTRONAUT and len(emoji.token_ids) == len(sentence.token_ids) == 8
    woman, joiner, rocket = characters(emoji.text, emoji.pieces)
    assert [len(char.parts) for char in (woman, joiner, rocket)] == [3, 2, 3]
    with pytest.raises(UnicodeDecodeError):
        emoji.pieces[0].decode()


def test_the_note_compares_the_two_texts(run: Run) -> None:
    store = run(text=SENTENCE)
    assert at(store, 2).note == f"Your text: 8 tokens. Beside it, {ASTRONAUT}: 8 tokens."
    assert at(store, 3).note == "'The' is token 504. Behind a space, ' The' is token 378."


@pytest.mark.parametrize("word", [" tokenization", "strawberry", "aaaa", "größer", " 東京", "x"])
def test_every_merge_joins_the_pair_of_lowest_rank(run: Run, model: Model, word: str) -> None:
    ranks = {pair: rank for rank, pair in enumerate(ReferenceModel(model).merges())}
    view = last(run(text="x", other="", word=word))
    first, *merges = view.merges
    assert first.pieces == tuple(bytes([byte]) for byte in word.encode())
    for before, merge in itertools.pairwise([first, *merges]):
        possible = [(ranks[pair], pair) for pair in itertools.pairwise(before.pieces) if pair in ranks]
        assert (merge.rank, merge.pair) == min(possible)
        assert b"".join(merge.pieces) == word.encode() and len(merge.pieces) == len(before.pieces) - 1
    assert not any(pair in ranks for pair in itertools.pairwise(view.merges[-1].pieces)), "nothing is left"
    assert "the same as llama.cpp's" in view.note and "not the same" not in view.note


def test_the_leftmost_pair_is_seldom_the_next(run: Run, model: Model) -> None:
    """What the lab's second sentence to watch says; a rule that joins the leftmost would fail here."""
    ranks = {pair: rank for rank, pair in enumerate(ReferenceModel(model).merges())}
    merges = last(run(text="x", word=" tokenization")).merges
    leftmost = [
        merge.pair == next(pair for pair in itertools.pairwise(before.pieces) if pair in ranks)
        for before, merge in itertools.pairwise(merges)
    ]
    assert sum(leftmost) < len(leftmost) / 2


def test_two_words_are_not_one_merge_and_it_says_why(run: Run) -> None:
    assert "it cuts a text into words first" in last(run(text="x", word="a  b")).note


@pytest.mark.parametrize("own", ["", "   "])
def test_an_empty_text_is_no_mistake(run: Run, own: str) -> None:
    view = last(run(text=own, other="", word=""))
    assert len(view.tokens) == 1 and view.note.startswith("0 tokens, the same as")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.data())
@settings(max_examples=60, deadline=None)
def test_characters_are_cut_where_pieces_end(chars: str, data: st.DataObject) -> None:
    raw = chars.encode()
    ends = sorted(data.draw(st.sets(st.integers(0, len(raw)))) | {0, len(raw)})
    found = characters(chars, [raw[a:b] for a, b in itertools.pairwise(ends)])
    assert "".join(char.text for char in found) == chars
    assert all(b"".join(char.parts).decode() == char.text and all(char.parts) for char in found)
    inside = set(ends) - {len(chars[:n].encode()) for n in range(len(chars) + 1)}
    assert sum(len(char.parts) - 1 for char in found) == len(inside)


def test_pieces_of_another_text_are_refused() -> None:
    with pytest.raises(ValueError, match="not the bytes"):
        characters("ab", [b"a"])


@pytest.mark.parametrize("width", [40, 53, 58, 78, 120])
def test_panels_keep_their_width(run: Run, width: int) -> None:
    store = run(text=MIXED * 3, word=" tokenization")
    for view in views(store):
        for name in ("tokens", "cost"):
            picture = make_panel(name).picture(view, width)
            assert all(line_width(line) <= width for line in picture.lines), name


def test_the_cost_panel_shows_cuts(run: Run) -> None:
    shown = text(make_panel("cost").picture(last(run(text="Caf\u00e9 \u6771")), 60))
    assert "U+00E9   c3 a9" in shown and "whole" in shown
    assert "U+6771   e6│9d│b1" in shown and "in 3 tokens" in shown
    assert shown.endswith("4 of 5 cut")
    assert "1 token\n" in text(make_panel("tokens").picture(last(run(text="x", other="")), 60))


def test_the_plain_twin_tells_cuts(run: Run) -> None:
    assert "'\U0001f680' is cut into 3 tokens" in tokens_text(at(run(text=SENTENCE), 2))
