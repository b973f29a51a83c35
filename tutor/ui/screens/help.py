"""The `?` overlay: every key of the screen below it."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

COMMON = (
    ("?", "this help"),
    ("Esc", "close, or back"),
    ("Ctrl+C", "quit from anywhere; nothing is lost"),
    ("Ctrl+Z", "suspend; fg in the shell comes back"),
)
WIDTH = 64  # columns of text in the narrowest dialog of an 80-column terminal


class HelpScreen(ModalScreen[None]):
    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,enter,q", "dismiss", "Close", show=False)
    ]

    def __init__(self, title: str, keys: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._title = title
        self._keys = keys + tuple(row for row in COMMON if row[0] not in {k for k, _ in keys})

    def compose(self) -> ComposeResult:
        width = max(len(keys) for keys, _ in self._keys) + 2
        lines = [Content.styled(f"Keys: {self._title}", "bold"), Content("")]
        for keys, what in self._keys:
            first, *rest = textwrap.wrap(what, WIDTH - width) or [""]
            lines.append(Content.assemble((keys.ljust(width), "bold $accent"), first))
            lines += [Content(" " * width + line) for line in rest]
        lines += [Content(""), Content.styled("Esc closes this.", "$secondary")]
        with VerticalScroll(id="help"):
            yield Static(Content("\n").join(lines), markup=False)

    def on_click(self) -> None:
        self.dismiss()
