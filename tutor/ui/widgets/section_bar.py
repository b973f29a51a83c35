"""The five steps of a lesson in one line: where one stands, what is behind."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static


class SectionBar(Static):
    """`show` takes (name, title, reached) of each section and the current name; a click goes there."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, sections: Sequence[tuple[str, str, bool]], current: str) -> None:
        parts: list[Content] = []
        for index, (name, title, reached) in enumerate(sections):
            here = name == current
            mark = "▸" if here else "✓" if reached else "·"
            style = "bold reverse" if here else "$success" if reached else "$secondary"
            label = Content.styled(f" {mark} {title} ", style).stylize(f"@click=screen.go('{name}')")
            parts += [Content.styled("──", "$secondary")] * bool(index) + [label]
        self.update(Content.assemble(*parts))
