"""How the tutor looks: colours, the marks of the states, and what becomes of both on poor terminals.

Shape and word carry every meaning; colour only helps. `NO_COLOR` therefore drops all colours and keeps
bold and reverse, 16-colour terminals get the nearest of theirs, and ASCII mode translates every
character on its way out, one for one, so that nothing moves.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.filter import LineFilter
from textual.theme import Theme

if TYPE_CHECKING:
    from textual.color import Color

TUTOR_THEME = Theme(
    name="tutor",
    primary="#6ca0dc",
    secondary="#8fa3b8",
    accent="#e3b341",
    success="#73b873",
    warning="#d9a441",
    error="#e0706c",
    foreground="#ccd3db",
    background="#14171c",
    surface="#1a1e25",
    panel="#232932",
    dark=True,
    variables={
        "scrollbar": "#3a4350",
        "scrollbar-hover": "#6ca0dc",
        "scrollbar-active": "#6ca0dc",
        "scrollbar-background": "#14171c",
        "scrollbar-background-hover": "#14171c",
        "scrollbar-background-active": "#14171c",
        "scrollbar-corner-color": "#14171c",
    },
)

# status -> (mark, word); "unwritten" is a lesson without text
STATES = {
    "done": ("✓", "done"),
    "ready": ("◆", "ready"),
    "in_progress": ("◇", "in progress"),
    "locked": ("·", "locked"),
    "unwritten": ("○", "not written"),
}

# provenance -> (mark, word)
PROVENANCE = {
    "measured": ("●", "MEASURED"),
    "simulated": ("◌", "SIMULATED"),
    "modelled": ("◇", "MODELLED"),
}

# which neighbours a line cell joins (1 up, 2 down, 4 left, 8 right) -> character
LIGHT = " │││─┘┐┤─└┌├─┴┬┼"
HEAVY = " ┃┃┃━┛┓┫━┗┏┣━┻┳╋"

_ASCII = {
    "│": "|", "─": "-", "┘": "+", "┐": "+", "┤": "+", "└": "+", "┌": "+", "├": "+", "┴": "+", "┬": "+",
    "┼": "+", "╭": "+", "╮": "+", "╯": "+", "╰": "+",
    "┃": "#", "━": "=", "┛": "#", "┓": "#", "┫": "#", "┗": "#", "┏": "#", "┣": "#", "┻": "#", "┳": "#",
    "╋": "#", "╸": "=", "╺": "=", "═": "=", "║": "#", "╔": "#", "╗": "#", "╚": "#", "╝": "#",
    "✓": "v", "✗": "x", "◆": "*", "◇": "o", "○": "-", "●": "@", "◌": "o", "·": ".", "↻": "r", "•": "*",
    "▶": ">", "►": ">", "▸": ">", "◀": "<", "◄": "<", "▼": "v", "▲": "^", "‖": "=", "→": ">", "←": "<",
    "↑": "^", "↓": "v", "█": "#", "▓": "%", "▒": "+", "░": ":", "▌": "|", "▐": "|", "▎": "|", "▏": "|",
    "▄": "_", "▀": "^", "▁": "_", "▂": "_", "▃": "_", "▅": "#",
    "▆": "#", "▇": "#", "▕": "|", "▔": "-", "▊": "|", "▋": "|", "▍": "|", "▉": "#",
    "⎵": "_", "␣": "_", "⏎": "~",
    "×": "x", "−": "-", "–": "-", "—": "-", "…": "~", "≤": "<", "≥": ">", "≈": "~", "≠": "!", "±": "~",
    "“": '"', "”": '"', "‘": "'", "’": "'", " ": " ", "α": "a", "µ": "u", "μ": "u", "√": "v", "²": "2",
    "₁": "1", "₂": "2", "₃": "3",
}  # fmt: skip
_TABLE = str.maketrans(_ASCII)


def to_ascii(text: str) -> str:
    """The text in ASCII, as wide as before; what has no likeness becomes `?`."""
    if text.isascii():
        return text
    text = text.translate(_TABLE)
    if text.isascii():
        return text
    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text)


class AsciiFilter(LineFilter):
    """Everything that leaves for the terminal in ASCII: borders, scrollbars, lesson text, learner code."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(to_ascii(text), style, control) if control is None else Segment(text, style, control)
            for text, style, control in segments
        ]


def no_color() -> bool:
    """The NO_COLOR convention: set and not empty."""
    return bool(os.environ.get("NO_COLOR"))


def terminal_needs_ascii() -> bool:
    """The terminal's encoding has no box characters (LANG=C and the like)."""
    encoding = (getattr(sys.stdout, "encoding", "") or "utf-8").lower().replace("-", "")
    return not encoding.startswith("utf")


def needs_ascii(asked: bool) -> bool:
    return asked or terminal_needs_ascii()


def state_mark(status: str, written: bool = True) -> tuple[str, str]:
    """Mark and word of a lesson's state."""
    return STATES["unwritten" if not written and status != "done" else status]
