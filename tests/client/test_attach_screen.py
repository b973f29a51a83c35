"""The attach screen at 80x24 and wide, in colours and ASCII, while its server comes, changes and goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from tutor.client.attach.views import PercentileView, ServerView
from tutor.curriculum.loader import load_course
from tutor.journal.store import Journal
from tutor.ui.app import TutorApp
from tutor.ui.screens.attach import AttachScreen
from tutor.ui.services import Services
from tutor.ui.widgets.server import LatencyPanel, LoadPanel, SlotsPanel, sparkline

WAIT = 30.0


@pytest.fixture
def open_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TutorApp]:
    monkeypatch.delenv("NO_COLOR", raising=False)

    def make(url: str, ascii_only: bool = False) -> TutorApp:
        services = Services(load_course(), Journal(tmp_path / "data"))
        first = AttachScreen(services, url, interval=0.1)
        return TutorApp(services, ascii_only=ascii_only, first=lambda: first)

    return make


def text(app: App[Any]) -> str:
    rows = []
    for strip in app.screen._compositor.render_strips():
        for line_filter in app.get_line_filters():
            strip = strip.apply_filter(line_filter, app.screen.background_colors[1])
        rows.append("".join(segment.text for segment in strip))
    return "\n".join(rows)


async def until(pilot: Pilot[Any], *parts: str) -> None:
    deadline = time.monotonic() + WAIT
    while not all(part in text(pilot.app) for part in parts):
        assert time.monotonic() < deadline, f"no {parts} on:\n{text(pilot.app)}"
        await pilot.pause(0.02)


async def test_vllm_fits_in_80_by_24(stage: Any, open_app: Callable[..., TutorApp]) -> None:
    stage.play("vllm_1.txt", version='{"version": "0.11.0"}')
    app = open_app(stage.url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "ATTACH  vLLM 0.11.0", "MEASURED by the server itself")
        stage.play("vllm_2.txt")
        await until(pilot, "running      11", "waiting      3", "KV cache     63%", "40% since start")
        shown = text(app)
        assert "estimated from buckets" in shown and "Example-8B-Instruct" in shown
        assert "P50" in shown and "TTFT" in shown and "queue" in shown
        assert "SLOTS" not in shown  # only llama-server has them
        assert not any(panel.show_vertical_scrollbar for panel in app.screen.query(LoadPanel))


async def test_llama_server_shows_slots_in_ascii(
    stage: Any, scrapes: Path, open_app: Callable[..., TutorApp]
) -> None:
    stage.play("llama_1.txt", slots=(scrapes / "slots.json").read_text())
    app = open_app(stage.url, ascii_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "1 of 2 busy", "decode", "100 in (31 cached), 40 out, 24 to go")
        await until(
            pilot, "running      2 of 2", "contexts     14%", "Not reported by this server: preemptions"
        )
        assert text(app).isascii()


async def test_a_server_that_goes_and_comes_back(stage: Any, open_app: Callable[..., TutorApp]) -> None:
    app = open_app(stage.url)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, "no /metrics (404)")
        stage.play("sglang_2.txt")
        await until(pilot, "ATTACH  SGLang", "running      7")
        stage.pages["/metrics"] = (503, b'{"error": {"message": "busy"}}')
        await until(pilot, "The server answered 503: busy", "s old.", "running      7")
        stage.play("sglang_1.txt")
        await until(pilot, "running      5", "restarted once")
        assert "503" not in text(app)


async def test_pause_stops_polling_and_keys_change_its_pace(
    stage: Any, open_app: Callable[..., TutorApp]
) -> None:
    stage.play("vllm_1.txt")
    app = open_app(stage.url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "running      8", "polled every 0.1 s")
        await pilot.press("less_than_sign")
        await until(pilot, "polled every 0.25 s")
        await pilot.press("space")
        await until(pilot, "paused")
        await pilot.pause(0.3)  # one that was under way may still end
        before = len(stage.asked)
        await pilot.pause(0.6)
        assert len(stage.asked) == before
        await pilot.press("p")
        await until(pilot, "paused")
        await pilot.press("space")
        stage.play("vllm_2.txt")
        await until(pilot, "running      11")
        await pilot.press("question_mark")
        await until(pilot, "Keys: a running server")
        await pilot.press("escape", "escape")
    assert app.return_code == 0


@pytest.mark.parametrize("width", [10, 30, 56, 60, 80, 120])
def test_panels_take_any_view_and_keep_their_width(width: int) -> None:
    from tutor.client.attach.views import LatencyView, PointView, SlotView
    from tutor.ui.widgets.panels.base import line_width

    above = LatencyView("TTFT", "", 3, 99.0, (PercentileView(99.0, 7680.0, True),), None)
    full = ServerView(
        url="x", kind="llama-server", status="ok", running=1e6, waiting=None, capacity=3, kv_usage=1.2,
        hit_rate=0.5, hit_rate_before=0.25, preemptions=3e9, preemption_rate=1e4,
        input_rate=1e9, acceptance=0.4,
        latencies=(above,), points=(PointView(0.0, 1.0, None, 0.5, 1e9),) * 200,
        slots=(SlotView(0, True, 512, 400, 100, 50, 20), SlotView(1, False, 512, 0, 0, 0, 0)),
    )  # fmt: skip
    for view in (ServerView(url="x"), full):
        for panel in (LoadPanel("load"), LatencyPanel("latency"), SlotsPanel("slots")):
            for line in panel.lines(view, width):
                assert line_width(line) <= max(width, 56)  # a narrower terminal shows one sentence instead


def test_sparklines() -> None:
    assert sparkline([0, 4, 8], 5) == "  ▁▄█"
    assert sparkline([None, 2], 2, top=4.0) == " ▄"
    assert sparkline([1, 2, 3], 2) == "▅█" and sparkline([], 3) == "   " and sparkline([1.0], 0) == ""
