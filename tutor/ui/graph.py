"""Where the map's cards and wires go: a layered drawing, computed once from the course.

Columns are stages. An edge over more than one column passes the columns between in a lane, a row of
its own; lanes of one source, or of one target, are shared. Vertical wires run in tracks between the
columns. All coordinates are character cells, x to the right and y down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CARD_WIDTH = 25
CARD_HEIGHT = 4
PORT_ROW = 1  # the row of a card where wires arrive and leave
SWEEPS = 6

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8

Edge = tuple[str, str]
Cells = dict[tuple[int, int], int]  # (x, y) -> which of the four neighbours the wire joins there


@dataclass(frozen=True)
class Node:
    """A lesson as the layout sees it; `column` counts from 0."""

    id: str
    column: int
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Box:
    id: str
    column: int
    x: int
    y: int

    def contains(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + CARD_WIDTH and self.y <= y < self.y + CARD_HEIGHT


@dataclass(frozen=True)
class GraphLayout:
    """`wires` has the cells of each edge, without the cards' own borders."""

    boxes: dict[str, Box]
    wires: dict[Edge, Cells]
    column_x: tuple[int, ...]
    width: int
    height: int


class _Item:
    """A card or a lane in one column."""

    def __init__(self, key: str, column: int, height: int) -> None:
        self.key = key
        self.column = column
        self.height = height
        self.y = 0
        self.before: list[_Item] = []
        self.after: list[_Item] = []

    @property
    def port(self) -> int:
        return self.y + (PORT_ROW if self.height == CARD_HEIGHT else 0)


def layout(nodes: Sequence[Node], gap: int = 0) -> GraphLayout:
    """Place the cards with `gap` free rows between them and route every edge."""
    columns, routes = _items(nodes)
    _order(columns)
    height = max((_total(column, gap) for column in columns), default=0)
    _assign_rows(columns, gap, height)
    column_x, wires = _route(columns, routes)
    width = (column_x[-1] + CARD_WIDTH) if column_x else 0
    cards = [item for column in columns for item in column if item.height == CARD_HEIGHT]
    boxes = {item.key: Box(item.key, item.column, column_x[item.column], item.y) for item in cards}
    return GraphLayout(boxes, wires, tuple(column_x), width, height)


def _items(nodes: Sequence[Node]) -> tuple[list[list[_Item]], dict[Edge, list[_Item]]]:
    """Cards and lanes by column, and for each edge the items that it passes from left to right."""
    columns: list[list[_Item]] = [[] for _ in range(max((n.column for n in nodes), default=-1) + 1)]
    cards = {node.id: _Item(node.id, node.column, CARD_HEIGHT) for node in nodes}
    for node in nodes:
        columns[node.column].append(cards[node.id])
    long_needs = {n.id: [need for need in n.needs if n.column - cards[need].column > 1] for n in nodes}
    lanes: dict[tuple[str, int], _Item] = {}
    routes: dict[Edge, list[_Item]] = {}
    for node in nodes:
        for need in node.needs:
            # several long edges into one lesson join in one lane; else a lane belongs to its source
            name = f"to {node.id}" if len(long_needs[node.id]) > 1 else f"from {need}"
            route = [cards[need]]
            for column in range(cards[need].column + 1, node.column):
                lane = lanes.get((name, column))
                if lane is None:
                    lane = lanes[name, column] = _Item(name, column, 1)
                    columns[column].append(lane)
                route.append(lane)
            route.append(cards[node.id])
            routes[need, node.id] = route
            for left, right in pairwise(route):
                if right not in left.after:
                    left.after.append(right)
                    right.before.append(left)
    return columns, routes


def _order(columns: list[list[_Item]]) -> None:
    """Sort each column by the mean position of its neighbours, left to right and back."""
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            place = {id(item): index for c in columns for index, item in enumerate(c)}
            keys: dict[int, float] = {}
            for item in column:
                near = item.before if forward else item.after
                spots = [place[id(n)] / max(1, len(columns[n.column]) - 1) for n in near]
                own = place[id(item)] / max(1, len(column) - 1)
                keys[id(item)] = sum(spots) / len(spots) if spots else own
            column.sort(key=lambda item: keys[id(item)])


def _pitch(item: _Item, gap: int) -> int:
    return item.height + (gap if item.height == CARD_HEIGHT else 0)


def _total(column: Sequence[_Item], gap: int) -> int:
    return sum(_pitch(item, gap) for item in column) - (gap if column[-1].height == CARD_HEIGHT else 0)


def _assign_rows(columns: list[list[_Item]], gap: int, height: int) -> None:
    for column in columns:
        _stack(column, [float((height - _total(column, gap)) / 2)] * len(column), gap, height)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted: list[float] = []
            offset = 0
            for item in column:
                near = (item.before if forward else item.after) or [item]
                middle = sum(n.port for n in near) / len(near)
                wanted.append(middle - (item.port - item.y) - offset)
                offset += _pitch(item, gap)
            _stack(column, wanted, gap, height)


def _stack(column: Sequence[_Item], wanted: Sequence[float], gap: int, height: int) -> None:
    """Rows nearest to the wanted ones (given without the items above) that keep order and distance.

    This is isotonic regression by pooling, clipped to the drawing's height: the exact optimum in squares.
    """
    pools: list[tuple[float, int]] = []
    for want in wanted:
        mean, count = want, 1
        while pools and pools[-1][0] > mean:
            last, size = pools.pop()
            mean, count = (mean * count + last * size) / (count + size), count + size
        pools.append((mean, count))
    room = height - _total(column, gap)
    shifts = [round(min(max(mean, 0.0), room)) for mean, count in pools for _ in range(count)]
    offset = 0
    for item, shift in zip(column, shifts, strict=True):
        item.y = offset + shift
        offset += _pitch(item, gap)


# --- wires --------------------------------------------------------------------------------------

_Net = tuple[str, str]


def _route(
    columns: list[list[_Item]], routes: dict[Edge, list[_Item]]
) -> tuple[list[int], dict[Edge, Cells]]:
    column_x: list[int] = []
    tracks: list[dict[tuple[int, int], int]] = []  # for each gutter: (left item, right item) -> x
    x = 0
    for index, column in enumerate(columns):
        column_x.append(x)
        x += CARD_WIDTH
        if index + 1 < len(columns):
            nets = _nets(column)
            order = _track_order(nets)
            count = 1 + max(order.values(), default=0)
            at = {net: x + 1 + 2 * track for net, track in order.items()}
            tracks.append({pair: at.get(net, x + 1) for net, pairs in nets.items() for pair in _ids(pairs)})
            x += 2 * count + 1
    wires: dict[Edge, Cells] = {}
    for edge, route in routes.items():
        points = [(column_x[route[0].column] + CARD_WIDTH, route[0].port)]
        for left, right in pairwise(route):
            turn = tracks[left.column][id(left), id(right)]
            points += [(turn, left.port), (turn, right.port)]
        points.append((column_x[route[-1].column] - 1, route[-1].port))
        wires[edge] = _draw(points)
    return column_x, wires


def _ids(pairs: Iterable[tuple[_Item, _Item]]) -> list[tuple[int, int]]:
    return [(id(left), id(right)) for left, right in pairs]


def _nets(column: Sequence[_Item]) -> dict[_Net, list[tuple[_Item, _Item]]]:
    """The wires of one gutter in groups that may share a track: one source, or only one target."""
    lonely: dict[str, int] = defaultdict(int)
    for left in column:
        if len(left.after) == 1:
            lonely[left.after[0].key] += 1
    nets: dict[_Net, list[tuple[_Item, _Item]]] = {}
    for left in column:
        for right in left.after:
            joined = len(left.after) == 1 and lonely[right.key] > 1
            net = ("to", right.key) if joined else ("from", left.key)
            nets.setdefault(net, []).append((left, right))
    return nets


def _track_order(nets: dict[_Net, list[tuple[_Item, _Item]]]) -> dict[_Net, int]:
    """A track for each net that turns. Where one net leaves on the row on which another arrives,
    the first turns before the second, so that they do not run over each other."""
    lefts = {net: {left.port for left, _ in pairs} for net, pairs in nets.items()}
    rights = {net: {right.port for _, right in pairs} for net, pairs in nets.items()}
    turning = [net for net in nets if lefts[net] | rights[net] != lefts[net] & rights[net]]
    spans = {net: (min(lefts[net] | rights[net]), max(lefts[net] | rights[net])) for net in turning}
    earlier = {b: {a for a in turning if a != b and lefts[a] & rights[b]} for b in turning}
    order: dict[_Net, int] = {}
    left_over = sorted(turning, key=lambda net: spans[net])
    while left_over:
        # a cycle cannot be satisfied: then the first one in line goes, at the price of one shared run
        net = next((n for n in left_over if not (earlier[n] & set(left_over))), left_over[0])
        left_over.remove(net)
        track = max((order[a] + 1 for a in earlier[net] if a in order), default=0)
        while any(order[o] == track and _overlap(spans[o], spans[net]) for o in order):
            track += 1
        order[net] = track
    return order


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _draw(points: Sequence[tuple[int, int]]) -> Cells:
    cells: Cells = defaultdict(int)
    cells[points[0]] |= LEFT
    x, y = points[0]
    for to_x, to_y in points[1:]:
        while (x, y) != (to_x, to_y):
            if y == to_y:
                dx, out, back = (1, RIGHT, LEFT) if to_x > x else (-1, LEFT, RIGHT)
                cells[x, y] |= out
                x += dx
            else:
                dy, out, back = (1, DOWN, UP) if to_y > y else (-1, UP, DOWN)
                cells[x, y] |= out
                y += dy
            cells[x, y] |= back
    cells[x, y] |= RIGHT
    return dict(cells)
