"""The one-line search field of the map."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class SearchBar(Input):
    """Posts `Moved` for the arrow keys; what it finds is the screen's business."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    class Moved(Message):
        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self) -> None:
        super().__init__(placeholder="search the lessons: type, Enter accepts, Esc closes", compact=True)

    def on_mount(self) -> None:
        self.focus()

    def action_move(self, step: int) -> None:
        self.post_message(self.Moved(step))
