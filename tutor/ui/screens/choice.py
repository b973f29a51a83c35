"""A question with a few answers, each behind its own key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Static


class ChoiceScreen(ModalScreen[str]):
    """Dismisses with the key of the chosen answer, or with "" on Esc."""

    CSS_PATH = "dialog.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", show=False)]

    def __init__(self, question: str, answers: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._question = question
        self._answers = tuple(answers)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Static("", markup=False)
            for key, text in self._answers:
                line = Content.assemble((key, "bold $accent"), f"  {text}")
                yield Static(line.stylize(f"@click=screen.choose('{key}')"), markup=False)
            yield Static("Esc changes nothing.", classes="foot", markup=False)

    def action_choose(self, key: str) -> None:
        self.dismiss(key)

    def on_key(self, event: Key) -> None:
        if event.character in {key for key, _ in self._answers}:
            event.stop()
            self.dismiss(event.character)
