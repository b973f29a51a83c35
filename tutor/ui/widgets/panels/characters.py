"""What texts cost, and which of their characters are cut by the end of a token."""

from __future__ import annotations

from typing import ClassVar

from tutor.metrics.characters import Character, characters
from tutor.trace.views import LabView, TokensView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, legend, pad, printable
from tutor.ui.widgets.panels.numbers import bar

COUNTS = 22  # columns of the three counts
MOST_BAR = 24


class CostPanel(Panel):
    """Each text with its characters, bytes and tokens; then every character of several bytes."""

    TITLE: ClassVar[str] = "COST"
    WHAT: ClassVar[str] = "No text was tokenized yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.tokens:
            return Picture(())
        room = max(8, min(40, width - COUNTS - 10))
        most = max(len(tokens.token_ids) for tokens in view.tokens) or 1
        lines: list[Line] = [((" " * room + "  chars  bytes tokens", "muted"),)]
        lines += [_cost(tokens, most, room, width) for tokens in view.tokens]
        found = _long_characters(view)
        if found:
            lines += [(), (("characters of several bytes, in hex", "muted"),)]
            lines += [_bytes(char, width) for char in found]
            lines += legend("│ a token ends inside the character", width)
        cut = sum(char.is_cut for char in found)
        return Picture(tuple(lines), (), f"{cut} of {len(found)} cut" if found else "")


def _cost(tokens: TokensView, most: int, room: int, width: int) -> Line:
    shown = pad(printable(tokens.text).replace(" ", "␣") or "–", room)
    count = len(tokens.token_ids)
    numbers = f"{len(tokens.text):7}{len(tokens.text.encode()):7}{count:7} "
    space = min(MOST_BAR, width - room - COUNTS)
    return ((shown, "text"), (numbers, "now"), (bar(count / most, space) if space > 3 else "", "bar"))


def _long_characters(view: LabView) -> list[Character]:
    """Each character of more than one byte once, as it was cut where it came first."""
    found: dict[str, Character] = {}
    for tokens in view.tokens:
        if b"".join(tokens.pieces) == tokens.text.encode():
            for char in characters(tokens.text, tokens.pieces):
                if len(char.text.encode()) > 1:
                    found.setdefault(char.text, char)
    return list(found.values())


def _bytes(char: Character, width: int) -> Line:
    shown = char.text if char.text.isprintable() else "·"
    code = f"U+{ord(char.text):04X}"
    hexes = "│".join(part.hex(" ") for part in char.parts)
    count = f"in {len(char.parts)} tokens" if char.is_cut else "whole"
    head = f"{pad(shown, 3)}{code:8} "
    return ((head, "text"), (pad(hexes, 15), "accent" if char.is_cut else "bar"),
            (clip(f" {count}", width - 27), "muted"))  # fmt: skip
