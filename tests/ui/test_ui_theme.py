"""Marks, lines and their ASCII twins."""

from __future__ import annotations

from rich.cells import cell_len

from tutor.ui.theme import HEAVY, LIGHT, PROVENANCE, STATES, needs_ascii, state_mark, to_ascii
from tutor.ui.widgets.transport import STATUS
from tutor.ui.widgets.verdict_list import MARKS


def test_ascii_keeps_every_width() -> None:
    marks = "".join(mark for mark, _ in [*STATES.values(), *PROVENANCE.values(), *STATUS.values()])
    drawn = LIGHT + HEAVY + marks + "".join(mark for mark, _ in MARKS.values()) + "×−→“”…█▓▒░▏▎▍▌▋▊▉╭╮╰╯⏎␣"
    for char in drawn + "日本é":
        plain = to_ascii(char)
        assert plain.isascii()
        assert cell_len(plain) == cell_len(char), char


def test_our_own_marks_have_a_likeness_in_ascii() -> None:
    for mark, _ in [*STATES.values(), *PROVENANCE.values(), *STATUS.values()]:
        assert to_ascii(mark) != "?", mark
    assert "?" not in to_ascii(LIGHT + HEAVY)


def test_states_stay_apart_in_ascii() -> None:
    plain = [to_ascii(mark) for mark, _ in STATES.values()]
    assert len(set(plain)) == len(plain)


def test_lit_lines_stay_apart_from_others_in_ascii() -> None:
    assert not set(to_ascii(LIGHT[1:])) & set(to_ascii(HEAVY[1:]))


def test_unwritten_lessons_have_their_own_word() -> None:
    assert state_mark("locked", written=False)[1] == "not written"
    assert state_mark("locked")[1] == "locked"
    assert state_mark("done", written=False)[1] == "done"


def test_ascii_can_be_asked_for() -> None:
    assert needs_ascii(True)


def test_every_block_element_has_a_likeness() -> None:
    """Scrollbars end in any eighth of a cell."""
    for code in range(0x2580, 0x2596):
        assert "?" not in to_ascii(chr(code)), hex(code)
