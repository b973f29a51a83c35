"""The styles of a widget that paints its lines itself, each looked up once."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.scroll_view import ScrollView


class StyledLines(ScrollView):
    """For the Line API: `_style(name)` is the component class PREFIX--name, or the widget's own style."""

    PREFIX: ClassVar[str] = ""

    _styles: dict[str, Style]

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._styles = {}

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def _style(self, name: str) -> Style:
        if name not in self._styles:
            component = f"{self.PREFIX}--{name}"
            known = component in self.COMPONENT_CLASSES
            self._styles[name] = self.get_component_rich_style(component) if known else self.rich_style
        return self._styles[name]
