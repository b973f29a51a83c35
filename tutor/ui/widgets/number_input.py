"""A field for a number. Letters that belong to no number stay keys of the screen."""

from __future__ import annotations

from textual.events import Key
from textual.widgets import Input

ALLOWED = frozenset("0123456789.,-+eE_ %")


class NumberInput(Input):
    """Takes digits and what stands between them; other keys go on to the screen's bindings."""

    def __init__(self) -> None:
        super().__init__(compact=True, placeholder="a number")

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return character in ALLOWED if character is not None else False

    async def _on_key(self, event: Key) -> None:
        if event.is_printable and event.character not in ALLOWED:
            event.prevent_default()
