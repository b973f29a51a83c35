"""Every panel draws a view as it is, within its width, and repaints only what changed."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from tutor.labs.registry import get_kind, kinds
from tutor.trace import events as ev
from tutor.trace.playback import Playback
from tutor.trace.store import Recorder, TraceStore
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel, panel_names
from tutor.ui.widgets.panels.base import Panel, line_width
from tutor.ui.widgets.panels.numbers import bar


def at(store: TraceStore, step: int) -> LabView:
    playback = Playback(store, follow=False)
    playback.seek(step)
    return playback.view


def lines(name: str, view: LabView, width: int = 70) -> str:
    picture = make_panel(name).picture(view, width)
    return (
        "\n".join("".join(text for text, _ in line).rstrip() for line in picture.lines) + "\n" + picture.note
    )


@pytest.fixture
def text_store() -> TraceStore:
    """One small run of everything that is not serving."""
    store = TraceStore(ev.TraceHeader(lab="request", clock="wall", provenance="measured", model="hand-made"))
    ticks = iter(range(1000))
    record = Recorder(store.append, lambda: next(ticks) / 10)
    record(ev.StageEntered("template", "<s>hi</s>"))
    record(ev.TextTokenized("hé\n", (5, 300, 7), ("68", "c3", "a9")))
    record(ev.PiecesMerged(("61", "62"), ("", ""), -1))
    record(ev.PiecesMerged(("6162",), ("61", "62"), 12))
    record.step = 1
    record(ev.StageEntered("prefill", "pass 1 runs 3 tokens"))
    record(ev.LogitsComputed(2, (1, 2), (" Paris", "\n"), (0.75, 0.125), 1.5))
    record(ev.LayerComputed(3, (1, 2), (" a", " b"), (0.5, 0.25), 12.5))
    record(ev.TensorSeen("Qcur-0", "queries: projection", (3, 9, 64)))
    record(ev.TokensComputed("with cache", 3, 3, 0.01, 3, "x"))
    record(ev.TokensComputed("without", 3, 6, 0.02, 0, "x"))
    record(ev.CacheDropped("with cache", 1, 2, "edited"))
    record(ev.BufferMeasured("f16", 300, 1, "f16", "f16", 512, 2 << 20, 2 << 20))
    record(ev.BufferMeasured("q4", 300, 1, "q4_0", "q4_0", 512, 1 << 20, 2 << 20))
    return store


def test_every_panel_of_every_lab_exists() -> None:
    wanted = {name for kind in kinds() for name in get_kind(kind).panels}
    assert wanted <= set(panel_names())


@pytest.mark.parametrize("name", panel_names())
@pytest.mark.parametrize("width", [53, 58, 78, 120])
def test_panels_take_any_view_and_keep_their_width(
    name: str, width: int, serving_store: TraceStore, text_store: TraceStore
) -> None:
    for store in (serving_store, text_store):
        for step in range(store.last_step + 1):
            picture = make_panel(name).picture(at(store, step), width)
            longest = max((line_width(line) for line in picture.lines), default=0)
            assert longest <= width or name in ("merges", "buffers")  # these two scroll sideways
            for item in picture.items:
                assert 0 <= item.y < len(picture.lines) and item.x < max(width, longest)


def test_blocks_show_owner_shared_and_free(serving_store: TraceStore) -> None:
    shown = lines("blocks", at(serving_store, 2))
    assert "A . s . . B" in shown
    assert "2:AB" in shown and "3/6 used, 4 tokens each" in shown
    assert "0  . . c . . ." in lines("blocks", at(serving_store, 3))  # block 2 is kept under its hash


def test_tables_map_places_to_blocks(serving_store: TraceStore) -> None:
    shown = lines("tables", at(serving_store, 2))
    assert "A 0→2 1→0 last 2/4" in shown and "B 0→2 1→5" in shown


def test_cells_agree_and_disagree_aloud(serving_store: TraceStore) -> None:
    assert "✓ 12 cells compared with the block tables, 0 differ" in lines("cells", at(serving_store, 2))
    record = Recorder(serving_store.append, lambda: 0.0)
    record._seq, record.step = len(serving_store), 4
    record(ev.CellMapRead(("0:0",), (3,), 1, ("cell 0 holds 0:0, the ledger says block 3",)))
    shown = lines("cells", at(serving_store, 4))
    assert "✗" in shown and "1 differ" in shown and "the ledger says block 3" in shown


def test_slots_show_phase_and_text(serving_store: TraceStore) -> None:
    shown = lines("slots", at(serving_store, 2))
    assert "0 A decode  ▓█" in shown and "1 B prefill  █" in shown
    assert "2/3" in shown and "blue" in shown and "3 of 8 tokens" in shown


def test_queues_and_reasons(serving_store: TraceStore) -> None:
    shown = lines("queues", at(serving_store, 3))
    assert "finished   A 2 length" in shown and "preempted  B(6)" in shown
    assert "4 of 11 tokens hit (36%)" in shown
    why = lines("why", at(serving_store, 2))
    assert "A 1 tok decode: decodes its newest token" in why
    assert "B shares 1 blocks (4 tokens) of A" in why


def test_text_panels(text_store: TraceStore) -> None:
    view = at(text_store, 1)
    assert "● prefill" in lines("pipeline", view) and "✓ template" in lines("pipeline", view)
    tokens = lines("tokens", view)
    assert "300" in tokens and "c3" in tokens and "3 tokens, 4 bytes" in tokens
    assert "a+b, rank 12" in lines("merges", view)


def test_number_panels(text_store: TraceStore) -> None:
    view = at(text_store, 1)
    logits = lines("logits", view)
    assert "␣Paris" in logits and "75.0%" in logits and "⏎" in logits and "1.50 bits" in logits
    assert "␣a" in lines("layers", view) and "12.5" in lines("layers", view)
    assert "3×9×64" in lines("tensors", view)
    buffers = lines("buffers", view)
    assert "✗ differs" in buffers and "1 of 2 formulas agree" in buffers and "512 cells" in buffers
    assert "2.0 times the tokens" in lines("lanes", view)
    assert "2 entries dropped from position 1 on" in lines("cache", view)


@pytest.mark.parametrize(("share", "full"), [(0.0, 0), (0.5, 5), (1.0, 10), (2.0, 10), (-1.0, 0)])
def test_bar(share: float, full: int) -> None:
    assert bar(share, 10).count("█") == full and len(bar(share, 10)) == 10


class OnePanel(App[None]):
    def __init__(self, panel: Panel) -> None:
        super().__init__()
        self.panel = panel

    def compose(self) -> ComposeResult:
        yield self.panel


async def test_only_changed_lines_are_repainted(
    serving_store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = OnePanel(make_panel("tables"))
    async with app.run_test(size=(60, 12)) as pilot:
        app.panel.show(at(serving_store, 2))
        await pilot.pause()
        painted: list[int] = []
        monkeypatch.setattr(app.panel, "refresh_lines", lambda y, count=1: painted.append(y))
        again = at(serving_store, 2)
        app.panel.show(again)  # an equal picture in another object
        assert painted == []
        app.panel.show(at(serving_store, 1))  # B's line is gone, A's is another
        assert painted == [1, 2]


async def test_cursor_walks_over_items_and_enter_inspects(serving_store: TraceStore) -> None:
    got: list[tuple[str, str]] = []

    class Listening(OnePanel):
        def on_panel_inspect(self, event: Panel.Inspect) -> None:
            got.append((event.kind, event.key))

    app = Listening(make_panel("blocks"))
    async with app.run_test(size=(60, 12)) as pilot:
        app.panel.show(at(serving_store, 2))
        app.panel.focus()
        await pilot.press("right", "right", "right", "enter")
        await pilot.pause()
        assert got == [("block", "2")]
        await pilot.click(offset=(5 + 2 * 5, 1))
        await pilot.pause()
        assert got[-1] == ("block", "5")
