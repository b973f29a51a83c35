"""What all panels share: lines from a view, repainting of changed lines only, a cursor over its items.

A panel is a pure function from a frozen view and a width to lines; this class caches the result, paints
what differs and lets the learner walk over the things in it (blocks, slots, requests).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tutor.trace.views import LabView
from tutor.ui.widgets.styled_lines import StyledLines

Run = tuple[str, str]  # text, style name
Line = tuple[Run, ...]

HEAD = 1  # the title line stays while the rest scrolls
OWNER_COLORS = 8


@dataclass(frozen=True)
class Item:
    """Something to inspect. `kind`: request, block, slot or position; x, y count below the title."""

    kind: str
    key: str
    x: int
    y: int
    width: int


@dataclass(frozen=True)
class Picture:
    """A panel at one view and width. `note` stands right of the title."""

    lines: tuple[Line, ...]
    items: tuple[Item, ...] = ()
    note: str = ""


def owner_style(label: str) -> str:
    """The style of a request's letter; colours repeat after eight, the letter tells them apart."""
    return f"owner{(ord(label[0]) - ord('A')) % OWNER_COLORS}" if label else "muted"


def line_width(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def printable(text: str) -> str:
    """Line ends and control characters made visible, one character each."""
    text = text.replace("\n", "⏎").replace("\t", "→")
    return "".join(char if char.isprintable() else "·" for char in text)


def clip(text: str, width: int) -> str:
    """The text in at most `width` cells, with … where it was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""


def legend(text: str, width: int) -> list[Line]:
    """A quiet explanation in as many lines as it needs; parts are two spaces apart."""
    lines: list[str] = []
    for part in text.split("  "):
        if lines and cell_len(lines[-1]) + 2 + cell_len(part) <= width:
            lines[-1] += "  " + part
        else:
            lines.append(part)
    return [((line, "muted"),) for line in lines]


def pad(text: str, width: int) -> str:
    return set_cell_size(clip(text, width), width)


class Panel(StyledLines, can_focus=True):
    """Base of the panels; subclasses define `TITLE` and `picture`."""

    TITLE: ClassVar[str] = ""
    WHAT: ClassVar[str] = ""  # said while there is nothing to show
    PREFIX = "panel"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "panel--title", "panel--note", "panel--muted", "panel--text", "panel--accent", "panel--good",
        "panel--bad", "panel--bar", "panel--cursor", "panel--now",
        *(f"panel--owner{i}" for i in range(OWNER_COLORS)),
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1, 0)", show=False),
        Binding("right", "move(1, 0)", show=False),
        Binding("up", "move(0, -1)", show=False),
        Binding("down", "move(0, 1)", show=False),
        Binding("enter", "inspect", show=False),
    ]

    class Inspect(Message):
        """Tell the whole life of this thing. kind: request, block or slot."""

        def __init__(self, kind: str, key: str) -> None:
            super().__init__()
            self.kind = kind
            self.key = key

    def __init__(self) -> None:
        super().__init__(classes="panel")
        self._view: LabView | None = None
        self._picture = Picture(())
        self._cursor: tuple[str, str] | None = None

    def picture(self, view: LabView, width: int) -> Picture:
        """What to draw; no side effects."""
        raise NotImplementedError

    # --- state ----------------------------------------------------------------------------------

    def show(self, view: LabView) -> None:
        """Take a view; nothing is painted unless lines differ."""
        if view is not self._view:
            self._view = view
            self._redraw()

    def on_resize(self) -> None:
        self._redraw()

    def watch_show_vertical_scrollbar(self) -> None:
        """A scrollbar takes columns away without a resize; lines of the old width would scroll sideways."""
        self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        width = self._room
        if self._view is None or width <= 0:
            return
        before = self._picture
        self._picture = after = self.picture(self._view, width)
        longest = max((line_width(line) for line in after.lines), default=0)
        size = Size(max(longest, 1), len(after.lines) + HEAD)
        at_end = self.scroll_offset.y >= self.max_scroll_y
        if size != self.virtual_size:
            self.virtual_size = size
            if self.follows_end and at_end:
                self.scroll_end(animate=False)
        if before.note != after.note:
            self.refresh_lines(self.scroll_offset.y, HEAD)
        for y in range(max(len(before.lines), len(after.lines))):
            if before.lines[y : y + 1] != after.lines[y : y + 1]:
                self.refresh_lines(y + HEAD, 1)

    @property
    def follows_end(self) -> bool:
        """Whether the panel stays at its newest line."""
        return False

    @property
    def _room(self) -> int:
        """Columns beside the scrollbar."""
        return self.scrollable_content_region.width

    # --- items ----------------------------------------------------------------------------------

    @property
    def current(self) -> Item | None:
        """The item under the cursor, if it still exists."""
        return next((i for i in self._picture.items if (i.kind, i.key) == self._cursor), None)

    def action_move(self, dx: int, dy: int) -> None:
        items = self._picture.items
        here = self.current
        if not items:
            self.scroll_relative(x=dx * 4, y=dy, animate=False)
            return
        if here is None:
            self._set_cursor(items[0])
            return
        ahead = [
            i for i in items
            if (i.y == here.y and (i.x - here.x) * dx > 0) or (dy and (i.y - here.y) * dy > 0)
        ]  # fmt: skip
        if ahead:
            self._set_cursor(min(ahead, key=lambda i: (abs(i.y - here.y), abs(i.x - here.x))))

    def _set_cursor(self, item: Item) -> None:
        old = self.current
        self._cursor = (item.kind, item.key)
        for changed in (old, item):
            if changed is not None:
                self.refresh_lines(changed.y + HEAD, 1)
        top = self.scroll_offset.y
        bottom = top + self.size.height - HEAD - 1
        if not top <= item.y <= bottom:
            self.scroll_to(y=max(0, item.y - 1), animate=False)

    def action_inspect(self) -> None:
        if self.current is None and self._picture.items:
            self._set_cursor(self._picture.items[0])
        if self.current is not None:
            self.post_message(self.Inspect(self.current.kind, self.current.key))

    def on_click(self, event: Click) -> None:
        x, y = event.x - self.gutter.left + self.scroll_offset.x, event.y - HEAD + self.scroll_offset.y
        hit = next((i for i in self._picture.items if i.y == y and i.x <= x < i.x + i.width), None)
        if hit is not None:
            self._set_cursor(hit)
            self.action_inspect()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # --- drawing --------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        width = self._room
        if y < HEAD:
            return self._strip(self._title(width), 0, width)
        row = y - HEAD + top
        lines = self._picture.lines
        if row >= len(lines):
            empty = ((self.WHAT, "muted"),) if row == 0 and not lines else ()
            return self._strip(empty, 0, width)
        strip = self._strip(lines[row], left, width)
        item = self.current
        if item is not None and item.y == row and self.has_focus:
            return self._with_cursor(strip, item.x - left, item.width, width)
        return strip

    def _title(self, width: int) -> Line:
        mark = "▸ " if self.has_focus else ""
        title = mark + self.TITLE
        note = clip(self._picture.note, max(0, width - cell_len(title) - 2))
        gap = max(1, width - cell_len(title) - cell_len(note))
        return ((title, "title"), (" " * gap, ""), (note, "note"))

    def _strip(self, line: Line, left: int, width: int) -> Strip:
        runs = (Segment(text, self._style(name)) for text, name in line if text)
        strip = Strip(Segment.simplify(runs))  # each run costs some 25 bytes of colour on the line
        return strip.crop(left, left + width).adjust_cell_length(width, self._style(""))

    def _with_cursor(self, strip: Strip, x: int, length: int, width: int) -> Strip:
        start, end = max(0, x), min(width, x + length)
        if start >= end:
            return strip
        before, marked, after = strip.divide([start, end, width])
        return Strip.join([before, marked.apply_style(self._style("cursor")), after])
