"""Lines of the lab screen in a small terminal: all knobs are seen, no panel scrolls sideways by mistake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tutor.labs.registry import get_kind
from tutor.trace import events as ev
from tutor.trace.store import Recorder, TraceStore
from tutor.ui.app import TutorApp
from tutor.ui.screens.lab import LabScreen
from tutor.ui.services import Services
from tutor.ui.widgets.panels.text import TokensPanel

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]


def replay(services: Services, kind_id: str, event: ev.StageEntered | ev.TextTokenized) -> TutorApp:
    kind = get_kind(kind_id)
    header = ev.TraceHeader(lab=kind_id, clock="wall", provenance="measured", model="hand-made")
    store = TraceStore(header)
    Recorder(store.append, lambda: 0.0)(event)
    knobs = kind.settings({})
    return TutorApp(services, first=lambda: LabScreen(services, kind, knobs, trace=store))


@pytest.mark.parametrize("width", [80, 120])
async def test_all_knobs_of_the_sampling_lab_are_seen(
    services: Services, text: Text, until: Until, width: int
) -> None:
    kind = get_kind("sampling")
    app = replay(services, "sampling", ev.StageEntered("template", "hi"))
    async with app.run_test(size=(width, 24)) as pilot:
        await until(pilot, lambda: "knobs: " in text(app))
        for knob in kind.knobs[1:]:
            assert f"{knob.label} {knob.default}" in text(app), knob


async def test_more_knobs_than_two_lines_stay_on_one(services: Services, text: Text, until: Until) -> None:
    app = replay(services, "serving", ev.StageEntered("template", "hi"))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "knobs: " in text(app))
        assert app.screen.query_one("#knobs").size.height == 1


async def test_a_scrollbar_makes_lines_shorter_instead_of_scrolling_sideways(
    services: Services, until: Until
) -> None:
    words = tuple(b" nine-long".hex() for _ in range(300))  # boxes of 13 columns: six fill 78 to the last one
    app = replay(services, "tokens", ev.TextTokenized(" nine-long" * 300, tuple(range(300)), words))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(app.screen.query(TokensPanel)))
        panel = app.screen.query_one(TokensPanel)
        await until(pilot, lambda: panel.show_vertical_scrollbar)
        await until(pilot, lambda: not panel.show_horizontal_scrollbar)
