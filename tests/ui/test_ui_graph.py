"""The map's drawing: cards apart, wires whole, nothing drawn over something else."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutor.curriculum.loader import load_course
from tutor.ui.graph import (
    CARD_HEIGHT,
    CARD_WIDTH,
    DOWN,
    LEFT,
    PORT_ROW,
    RIGHT,
    UP,
    GraphLayout,
    Node,
    layout,
)

STEPS = {UP: (0, -1), DOWN: (0, 1), LEFT: (-1, 0), RIGHT: (1, 0)}
OPPOSITE = {UP: DOWN, DOWN: UP, LEFT: RIGHT, RIGHT: LEFT}


def course_nodes() -> list[Node]:
    return [Node(lesson.id, lesson.stage - 1, lesson.needs) for lesson in load_course()]


def check(drawing: GraphLayout, nodes: list[Node]) -> None:
    boxes = drawing.boxes
    assert set(boxes) == {node.id for node in nodes}
    for a, b in combinations(boxes.values(), 2):
        apart = a.column != b.column or abs(a.y - b.y) >= CARD_HEIGHT
        assert apart, (a, b)
    for box in boxes.values():
        assert 0 <= box.y <= drawing.height - CARD_HEIGHT
        assert 0 <= box.x <= drawing.width - CARD_WIDTH
    assert set(drawing.wires) == {(need, node.id) for node in nodes for need in node.needs}
    for (source, target), cells in drawing.wires.items():
        check_wire(drawing, source, target, cells)


def check_wire(drawing: GraphLayout, source: str, target: str, cells: dict[tuple[int, int], int]) -> None:
    """Walk from the source's right border to the target's left border; no cell lies on a card."""
    start, end = drawing.boxes[source], drawing.boxes[target]
    first = (start.x + CARD_WIDTH, start.y + PORT_ROW)
    last = (end.x - 1, end.y + PORT_ROW)
    assert cells[first] & LEFT and cells[last] & RIGHT
    for (x, y), mask in cells.items():
        assert not any(box.contains(x, y) for box in drawing.boxes.values())
        for way, (dx, dy) in STEPS.items():
            if mask & way and (x, y, way) not in ((*first, LEFT), (*last, RIGHT)):
                assert cells.get((x + dx, y + dy), 0) & OPPOSITE[way], (source, target, x, y)
    seen, open_cells = {first}, [first]
    while open_cells:
        x, y = open_cells.pop()
        for way, (dx, dy) in STEPS.items():
            near = (x + dx, y + dy)
            if cells[x, y] & way and near in cells and near not in seen:
                seen.add(near)
                open_cells.append(near)
    assert last in seen


@pytest.mark.parametrize("gap", [0, 1])
def test_course_is_drawn_whole(gap: int) -> None:
    nodes = course_nodes()
    drawing = layout(nodes, gap)
    check(drawing, nodes)
    assert len(drawing.column_x) == max(node.column for node in nodes) + 1


def test_roomy_course_fits_a_terminal_of_40_rows() -> None:
    assert layout(course_nodes(), 1).height <= 36


def test_wires_of_strangers_never_share_a_stretch_of_the_course_map() -> None:
    """Two edges may run over each other only if they come from, or lead to, the same lesson."""
    drawing = layout(course_nodes(), 0)
    for (edge_a, a), (edge_b, b) in combinations(drawing.wires.items(), 2):
        if edge_a[0] == edge_b[0] or edge_a[1] == edge_b[1]:
            continue
        for cell in set(a) & set(b):
            straight = {a[cell], b[cell]} == {UP | DOWN, LEFT | RIGHT}
            assert straight, (edge_a, edge_b, cell)


def test_layout_is_deterministic() -> None:
    assert layout(course_nodes()) == layout(course_nodes())


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 14))
    needs = {i: draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set() for i in range(count)}
    column: dict[int, int] = {}
    for i in range(count):
        column[i] = 1 + max((column[j] for j in needs[i]), default=-1)
    return [Node(f"n{i}", column[i], tuple(f"n{j}" for j in sorted(needs[i]))) for i in range(count)]


@given(graphs(), st.integers(0, 2))
def test_any_graph_is_drawn_whole(nodes: list[Node], gap: int) -> None:
    check(layout(nodes, gap), nodes)


def test_no_lessons_make_an_empty_drawing() -> None:
    assert layout([]).width == 0
