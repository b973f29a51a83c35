"""A grid of styled characters that is cut into strips: what the Line API widgets draw on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

Run = tuple[str, str]  # text and the name of its style


class Canvas:
    """Rows of single-width characters, each with the name of a style. Coordinates outside are an error."""

    def __init__(self, width: int, height: int, style: str) -> None:
        self.width = width
        self.height = height
        self._chars = [[" "] * width for _ in range(height)]
        self._styles = [[style] * width for _ in range(height)]

    def copy(self) -> Canvas:
        twin = Canvas(0, 0, "")
        twin.width, twin.height = self.width, self.height
        twin._chars = [row[:] for row in self._chars]
        twin._styles = [row[:] for row in self._styles]
        return twin

    def put(self, x: int, y: int, text: str, style: str) -> None:
        end = x + len(text)
        self._chars[y][x:end] = text
        self._styles[y][x:end] = [style] * len(text)

    def runs(self, y: int, start: int, end: int) -> tuple[Run, ...]:
        """The row from column `start` to `end` as stretches of one style."""
        chars, styles = self._chars[y], self._styles[y]
        found: list[Run] = []
        at = start = max(0, start)
        end = min(end, self.width)
        while at < end:
            style = styles[at]
            stop = at + 1
            while stop < end and styles[stop] == style:
                stop += 1
            found.append(("".join(chars[at:stop]), style))
            at = stop
        return tuple(found)


def strip_of(runs: Sequence[Run], style: Callable[[str], Style], width: int) -> Strip:
    """A strip of exactly `width` cells."""
    return Strip([Segment(text, style(name)) for text, name in runs]).adjust_cell_length(width, style(""))
