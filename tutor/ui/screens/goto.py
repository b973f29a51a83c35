"""Asks for a step to go to."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class GoToScreen(ModalScreen[int]):
    CSS_PATH = "dialog.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", show=False)]

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(f"Go to step (0 to {self._last})", classes="title", markup=False)
            yield Input(type="integer", compact=True)
            yield Static("Enter goes there, Esc closes this.", classes="foot", markup=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.value.strip().isdigit():
            self.dismiss(min(int(event.value), self._last))
