"""The map: lessons as cards, stages as columns, needs as wires; the path to the marked lesson is lit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from tutor.ui.canvas import Canvas, strip_of
from tutor.ui.graph import CARD_HEIGHT, CARD_WIDTH, PORT_ROW, Box, GraphLayout, Node, layout
from tutor.ui.theme import HEAVY, LIGHT, STATES
from tutor.ui.widgets.styled_lines import StyledLines

HEAD = 1  # the line with the stages' numbers stays while the cards scroll below it
ROOMY_HEIGHT = 37  # rows that the map needs to leave a free line between cards


@dataclass(frozen=True)
class Card:
    """One lesson on the map. `state` is a key of `theme.STATES`."""

    id: str
    title: str
    stage: int
    needs: tuple[str, ...]
    unlocks: tuple[str, ...]
    state: str


class CourseMap(StyledLines, can_focus=True):
    """Draws all cards from one frozen tuple; arrow keys walk, Enter or a second click opens."""

    PREFIX = "map"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "map--stage", "map--wire", "map--lit", "map--selected",
        "map--done", "map--ready", "map--in_progress", "map--locked", "map--unwritten",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "walk('left')", show=False),
        Binding("right", "walk('right')", show=False),
        Binding("up", "walk('up')", show=False),
        Binding("down", "walk('down')", show=False),
        Binding("home", "walk('first')", show=False),
        Binding("end", "walk('last')", show=False),
        Binding("enter", "open", show=False),
    ]

    class Marked(Message):
        """Another lesson is marked."""

        def __init__(self, lesson: str) -> None:
            super().__init__()
            self.lesson = lesson

    class Opened(Message):
        """The learner wants to go into this lesson."""

        def __init__(self, lesson: str) -> None:
            super().__init__()
            self.lesson = lesson

    def __init__(self, cards: Sequence[Card], marked: str) -> None:
        super().__init__()
        self._cards = {card.id: card for card in cards}
        self.marked = marked
        self._layouts: dict[int, GraphLayout] = {}
        self._gap = 0
        self._base: Canvas | None = None
        self._picture: Canvas | None = None

    # --- state ----------------------------------------------------------------------------------

    @property
    def _layout_now(self) -> GraphLayout:
        if self._gap not in self._layouts:
            nodes = [Node(card.id, card.stage - 1, card.needs) for card in self._cards.values()]
            self._layouts[self._gap] = layout(nodes, self._gap)
        return self._layouts[self._gap]

    @property
    def box(self) -> Box:
        return self._layout_now.boxes[self.marked]

    def show(self, cards: Sequence[Card]) -> None:
        """The same lessons with other states."""
        if tuple(cards) != tuple(self._cards.values()):
            self._cards = {card.id: card for card in cards}
            self._base = self._picture = None
            self.refresh()

    def mark(self, lesson: str, *, animate: bool = False) -> None:
        """Mark a lesson and bring it into view."""
        if lesson != self.marked:
            before = self._picture
            self.marked = lesson
            self._picture = None
            self._repaint_changed(before)
            self.post_message(self.Marked(lesson))
        self.bring_into_view()

    def bring_into_view(self) -> None:
        box = self.box
        # the lesson's column with its wires, and the line of stages, which covers the first row
        region = Region(box.x - 4, box.y, CARD_WIDTH + 8, CARD_HEIGHT + HEAD)
        self.scroll_to_region(region, animate=False, force=True)

    def _repaint_changed(self, before: Canvas | None) -> None:
        if before is None:
            self.refresh()
            return
        top = self.scroll_offset.y
        for y in range(top, min(before.height, top + self.size.height)):
            if before.runs(y, 0, before.width) != self._drawn.runs(y, 0, before.width):
                self.refresh_lines(y + HEAD, 1)

    # --- walking --------------------------------------------------------------------------------

    def action_walk(self, way: str) -> None:
        ids = self._walk_candidates(way)
        if ids:
            here = self.box
            boxes = self._layout_now.boxes
            nearest = min(
                ids, key=lambda id: (abs(boxes[id].column - here.column), abs(boxes[id].y - here.y))
            )
            self.mark(nearest)

    def _walk_candidates(self, way: str) -> list[str]:
        boxes = self._layout_now.boxes
        here = self.box
        card = self._cards[self.marked]
        if way == "first":
            return [min(boxes, key=lambda id: (boxes[id].column, boxes[id].y))]
        if way == "last":
            return [max(boxes, key=lambda id: (boxes[id].column, boxes[id].y))]
        if way in ("up", "down"):
            sign = -1 if way == "up" else 1
            return [id for id, b in boxes.items() if b.column == here.column and (b.y - here.y) * sign > 0]
        near = card.unlocks if way == "right" else card.needs
        step = 1 if way == "right" else -1
        beside = [id for id, box in boxes.items() if box.column == here.column + step]
        return [id for id in near if id in boxes] or beside

    def action_open(self) -> None:
        self.post_message(self.Opened(self.marked))

    def on_click(self, event: Click) -> None:
        x = event.x + self.scroll_offset.x
        y = event.y - HEAD + self.scroll_offset.y
        hit = next((id for id, box in self._layout_now.boxes.items() if box.contains(x, y)), None)
        if hit is None or event.y < HEAD:
            return
        if hit == self.marked:
            self.action_open()
        else:
            self.mark(hit)

    # --- drawing --------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """Take the roomy drawing where it fits. The scroll position follows the marked lesson."""
        gap = 1 if self.size.height >= ROOMY_HEIGHT else 0
        if gap != self._gap or self._base is None:
            self._gap = gap
            self._base = self._picture = None
        drawing = self._layout_now
        self.virtual_size = Size(drawing.width, drawing.height + HEAD)
        self.call_after_refresh(self.bring_into_view)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        width = self.size.width
        if y < HEAD:
            return strip_of(self._stage_runs(left, width), self._style, width)
        row = y - HEAD + top
        if row >= self._drawn.height:
            return Strip.blank(width, self._style(""))
        return strip_of(self._drawn.runs(row, left, left + width), self._style, width)

    def _stage_runs(self, left: int, width: int) -> list[tuple[str, str]]:
        line = [" "] * self._layout_now.width
        for number, x in enumerate(self._layout_now.column_x, start=1):
            text = f"STAGE {number}"
            line[x : x + len(text)] = text
        return [("".join(line[left : left + width]), "stage")]

    @property
    def _drawn(self) -> Canvas:
        if self._picture is None:
            if self._base is None:
                self._base = self._draw_base()
            self._picture = self._draw_marks(self._base.copy())
        return self._picture

    def _draw_base(self) -> Canvas:
        drawing = self._layout_now
        canvas = Canvas(drawing.width, drawing.height, "")
        self._draw_wires(canvas, drawing.wires, LIGHT, "wire")
        for id in self._cards:
            self._draw_card(canvas, id, lit=False)
        return canvas

    def _draw_marks(self, canvas: Canvas) -> Canvas:
        """Light the way to the marked lesson: its wires heavy, its own card with a heavy frame."""
        path = self._path()
        wires = [edge for edge in self._layout_now.wires if edge[0] in path and edge[1] in path]
        self._draw_wires(canvas, wires, HEAVY, "lit")
        for edge in wires:
            self._draw_ports(canvas, *edge)
        self._draw_card(canvas, self.marked, lit=True)
        for edge in wires:
            if edge[1] == self.marked:
                box = self.box
                canvas.put(box.x, box.y + PORT_ROW, "┫", "selected")
        return canvas

    def _path(self) -> set[str]:
        path = {self.marked}
        open_ids = [self.marked]
        while open_ids:
            fresh = [need for need in self._cards[open_ids.pop()].needs if need not in path]
            path.update(fresh)
            open_ids.extend(fresh)
        return path

    def _draw_wires(self, canvas: Canvas, edges: Iterable[tuple[str, str]], chars: str, style: str) -> None:
        joined: dict[tuple[int, int], int] = {}
        for edge in edges:
            for place, mask in self._layout_now.wires[edge].items():
                joined[place] = joined.get(place, 0) | mask
        for (x, y), mask in joined.items():
            canvas.put(x, y, chars[mask], style)

    def _draw_ports(self, canvas: Canvas, source: str, target: str) -> None:
        boxes = self._layout_now.boxes
        canvas.put(boxes[source].x + CARD_WIDTH - 1, boxes[source].y + PORT_ROW, "┣", "lit")
        canvas.put(boxes[target].x, boxes[target].y + PORT_ROW, "┫", "lit")

    def _draw_card(self, canvas: Canvas, id: str, *, lit: bool) -> None:
        card, box = self._cards[id], self._layout_now.boxes[id]
        mark, word = STATES[card.state]
        tone = "selected" if lit else card.state
        inner = CARD_WIDTH - 2
        side, flat, corners = ("┃", "━", "┏┓┗┛") if lit else ("│", "─", "╭╮╰╯")
        head = f"{flat} {mark} {word} "
        canvas.put(box.x, box.y, corners[0] + head.ljust(inner, flat) + corners[1], tone)
        lines = [*_wrap(card.title, inner - 2), ""][:2]
        for row, text in enumerate(lines, start=1):
            canvas.put(box.x, box.y + row, f"{side} {text.ljust(inner - 2)} {side}", tone)
        canvas.put(box.x, box.y + CARD_HEIGHT - 1, corners[2] + flat * inner + corners[3], tone)
        if not lit and card.needs:
            canvas.put(box.x, box.y + PORT_ROW, "┤", tone)
        if card.unlocks:
            canvas.put(box.x + CARD_WIDTH - 1, box.y + PORT_ROW, "┣" if lit else "├", tone)


def _wrap(title: str, width: int) -> list[str]:
    lines = textwrap.wrap(title, width)
    return [lines[0], textwrap.shorten(" ".join(lines[1:]), width, placeholder="…")] if lines[1:] else lines
