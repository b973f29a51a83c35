"""A field for a number and its unit. Letters typed into an empty field stay keys of the screen."""

from __future__ import annotations

from textual.events import Key
from textual.widgets import Input

ALLOWED = frozenset("0123456789.,-+eE_ %")  # what a number may begin with and be made of


class NumberInput(Input):
    """After a digit a unit may follow, as in "22.5 MiB". Letters typed before it are the screen's keys, so
    `n` goes on from an unanswered question, but never out of the midst of an answer."""

    def __init__(self) -> None:
        super().__init__(compact=True, placeholder="a number")

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return character is not None and self._takes(character)

    async def _on_key(self, event: Key) -> None:
        if event.is_printable and not self._takes(event.character or ""):
            event.prevent_default()

    def _takes(self, character: str) -> bool:
        return character in ALLOWED or (bool(self.value) and character.isalpha())
