"""Stop strings in a stream: the outcome is that of the whole text, however it is cut."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.serving.errors import ConfigError, IntegrityError
from tutor.serving.stop_strings import StopChecker

# Few letters, so that stop strings occur, overlap and hold each other; characters of 1 to 4 bytes.
LETTERS = "abé€𝄞"
texts = st.text(LETTERS, max_size=40)
stops = st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=4).map(tuple)


def stream(pieces: Sequence[str], stop: tuple[str, ...]) -> tuple[str, bool, str | None]:
    """(what was emitted, ended by a stop string?, which)."""
    checker, emitted = StopChecker(stop), ""
    for piece in pieces:
        text, stopped = checker.feed(piece)
        checker.check_integrity()
        emitted += text
        assert stopped is checker.stopped
    emitted += checker.flush()
    checker.check_integrity()
    return emitted, checker.stopped, checker.matched


def read_plainly(text: str, stop: tuple[str, ...]) -> tuple[str, bool, str | None]:
    """Grow the text a character at a time until it ends in a stop string; the longest of them counts."""
    for size in range(1, len(text) + 1):
        ends = [one for one in stop if text[:size].endswith(one)]
        if ends:
            longest = max(ends, key=len)
            return text[: size - len(longest)], True, longest
    return text, False, None


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    return [*pieces, text[at:]]


@settings(max_examples=300)
@given(texts, stops, st.lists(st.integers(0, 7), max_size=40))
def test_the_pieces_do_not_matter(text: str, stop: tuple[str, ...], sizes: list[int]) -> None:
    assert stream(cut(text, sizes), stop) == read_plainly(text, stop)


@settings(max_examples=300)
@given(texts, stops)
def test_no_more_is_withheld_than_has_to_be(text: str, stop: tuple[str, ...]) -> None:
    checker, emitted = StopChecker(stop), ""
    for size, letter in enumerate(text, 1):
        new, stopped = checker.feed(letter)
        emitted += new
        if stopped:
            break
        begun = max(
            (n for one in stop for n in range(1, len(one)) if text[:size].endswith(one[:n])), default=0
        )
        assert emitted == text[: size - begun]
        assert checker.withheld == text[size - begun : size]


@settings(max_examples=200)
@given(texts, stops, st.lists(st.integers(1, 5), max_size=60))
def test_characters_whose_bytes_come_from_several_tokens(
    text: str, stop: tuple[str, ...], sizes: list[int]
) -> None:
    data, pieces, at = text.encode(), [], 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    for size in sizes:
        pieces.append(decoder.decode(data[at : at + size]))
        at += size
    pieces.append(decoder.decode(data[at:], final=True))
    assert stream(pieces, stop) == read_plainly(text, stop)


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["one ST", "OP two"], ("STOP",), ("one ", True, "STOP")),
        (["STOP"], ("STOP",), ("", True, "STOP")),
        (["a ST", "ST", "OP"], ("STOP",), ("a ST", True, "STOP")),  # the first ST was none
        (["aab", "aac"], ("aabaac",), ("", True, "aabaac")),
        (["aaab"], ("aab",), ("a", True, "aab")),  # the beginning overlaps itself
        (["abcd"], ("abcd", "c"), ("ab", True, "c")),  # c is complete first, though abcd began before it
        (["xabc"], ("c", "bc", "abc"), ("x", True, "abc")),  # complete together: the longest
        (["no end ST"], ("STOP",), ("no end ST", False, None)),  # flushed
        (["text"], (), ("text", False, None)),
        (["", "a", ""], ("b",), ("a", False, None)),
        (["\n", "\nUser:"], ("\n\n", "User:"), ("", True, "\n\n")),
    ],
)
def test_cases(pieces: list[str], stop: tuple[str, ...], expected: tuple[str, bool, str | None]) -> None:
    assert stream(pieces, stop) == expected


def test_text_after_the_end_is_dropped() -> None:
    checker = StopChecker(("b",))
    assert checker.feed("ab") == ("a", True)
    assert checker.feed("more b") == ("", True)
    assert checker.flush() == ""


def test_a_flush_forgets_what_was_withheld() -> None:
    checker = StopChecker(("ab",))
    assert checker.feed("xa") == ("x", False)
    assert checker.flush() == "a"
    assert checker.feed("b") == ("b", False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        StopChecker(("a", ""))


@pytest.mark.parametrize("held", ["x", "ab", "aba"])
def test_integrity_finds_text_withheld_wrongly(held: str) -> None:
    checker = StopChecker(("ab", "b"))
    checker.withheld = held
    with pytest.raises(IntegrityError, match="withheld"):
        checker.check_integrity()


def test_integrity_finds_text_withheld_after_the_end() -> None:
    checker = StopChecker(("ab",))
    checker.feed("ab")
    checker.withheld = "a"
    with pytest.raises(IntegrityError, match="after a stop string"):
        checker.check_integrity()
