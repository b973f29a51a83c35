"""An exercise's solution, to read."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea


class SolutionScreen(ModalScreen[None]):
    CSS_PATH = "solution.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", show=False, priority=True)]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(f"One solution of many: {self._title}. Esc closes it.", classes="title", markup=False)
        yield TextArea.code_editor(self._text, language="python", read_only=True)

    def on_mount(self) -> None:
        from tutor.ui.code_theme import CODE_THEME

        area = self.query_one(TextArea)
        area.register_theme(CODE_THEME)
        area.theme = CODE_THEME.name
