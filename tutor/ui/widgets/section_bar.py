"""The five steps of a lesson in one line: where one stands, what is behind."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

# what became of a section -> (mark, style)
SECTION_STATES = {"done": ("✓", "$success"), "seen": ("◇", "$text"), "": ("·", "$secondary")}


class SectionBar(Static):
    """`show` takes (name, title, state) of each section and the current name; a click goes there."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, sections: Sequence[tuple[str, str, str]], current: str) -> None:
        parts: list[Content] = []
        for index, (name, title, state) in enumerate(sections):
            mark, style = ("▸", "bold reverse") if name == current else SECTION_STATES[state]
            label = Content.styled(f" {mark} {title} ", style).stylize(f"@click=screen.go('{name}')")
            parts += [Content.styled("──", "$secondary")] * bool(index) + [label]
        self.update(Content.assemble(*parts))
