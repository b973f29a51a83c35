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
from tutor.ui.screens.attach import AttachScreen, fit
from tutor.ui.services import Services
from tutor.ui.widgets.server import EnginesPanel, LatencyPanel, LoadPanel, SlotsPanel, sparkline

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
    await pilot.pause()  # the frame is whole


async def until_gone(pilot: Pilot[Any], part: str) -> None:
    deadline = time.monotonic() + WAIT
    while part in text(pilot.app):
        assert time.monotonic() < deadline, f"{part} still on:\n{text(pilot.app)}"
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


async def test_two_engines_stand_below_each_other(
    stage: Any, scrapes: Path, open_app: Callable[..., TutorApp]
) -> None:
    stage.play("vllm_dp_1.txt")
    app = open_app(stage.url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "2 engines, added up", "ENGINES", "fullest KV   91%")
        stage.play("vllm_dp_2.txt")
        await until(pilot, "running      15", "drafts ok    60%", "KV  97%", "KV  25%")
        rows = [" ".join(row.split()) for row in text(app).splitlines()]
        assert any(row.startswith("engine 0 12 running 6 waiting KV 97%") for row in rows)
        assert any(row.startswith("engine 1 3 running 0 waiting KV 25%") for row in rows)
        await pilot.resize_terminal(60, 16)
        await pilot.press("tab", "tab")
        await until(pilot, "engine 1", "q quit")  # what does not fit is scrolled to
        stage.play("vllm_1.txt")
        await until(pilot, "restarted once")
        await until_gone(pilot, "ENGINES")


async def test_the_state_stays_on_one_line(stage: Any, open_app: Callable[..., TutorApp]) -> None:
    info = '{"version": "0.5.1", "max_total_num_tokens": 45000, "max_running_requests": 128}'
    stage.play("sglang_1.txt", get_server_info=info)
    app = open_app(stage.url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "45,000 tokens of KV  polled every 0.1 s", "running      5 of 128")
        assert app.screen.query_one("#server").size.height == 1
        await pilot.resize_terminal(60, 20)
        await until(pilot, f"{stage.url}  polled every 0.1 s")
        await until_gone(pilot, "tokens of KV")
        assert app.screen.query_one("#server").size.height == 1


async def test_an_answer_that_comes_when_the_screen_has_gone(
    stage: Any, open_app: Callable[..., TutorApp]
) -> None:
    stage.play("vllm_1.txt")
    app = open_app(stage.url)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "running      8")
        screen = app.screen
        assert isinstance(screen, AttachScreen)
    screen._show(ServerView(url=stage.url, name="late"))  # `q` while a poll is under way


def test_facts_give_way_before_what_is_needed() -> None:
    url = "http://a-long-name.example.org:8000"
    assert fit(url, ("one", "two"), ("paused",), 80) == f"{url}  one  two  paused"
    assert fit(url, ("one", "two"), ("paused",), len(url) + 14) == f"{url}  one  paused"
    cut = fit(url, ("one",), ("restarted once", "paused"), 40)
    assert len(cut) == 40 and cut.endswith("…  restarted once  paused")


@pytest.mark.parametrize("width", [10, 30, 56, 60, 80, 120])
def test_panels_take_any_view_and_keep_their_width(width: int) -> None:
    from tutor.client.attach.views import EngineView, LatencyView, PointView, SlotView
    from tutor.ui.widgets.panels.base import line_width

    above = LatencyView("TTFT", "", 3, 99.0, (PercentileView(99.0, 7680.0, True),), None)
    full = ServerView(
        url="x", kind="llama-server", status="ok", running=1e6, waiting=None, capacity=3, kv_usage=1.2,
        hit_rate=0.5, hit_rate_before=0.25, preemptions=3e9, preemption_rate=1e4,
        input_rate=1e9, acceptance=0.4,
        latencies=(above,), points=(PointView(0.0, 1.0, None, 0.5, 1e9),) * 200,
        engines=(EngineView("engine 10", 1e6, None, 1.0), EngineView("x" * 99, 1.0, 2.0, None)),
        slots=(SlotView(0, True, 512, 400, 100, 50, 20), SlotView(1, False, 512, 0, 0, 0, 0)),
    )  # fmt: skip
    for view in (ServerView(url="x"), full):
        for panel in (
            LoadPanel("load"), LatencyPanel("latency"), SlotsPanel("slots"), EnginesPanel("engines"),
        ):  # fmt: skip
            for line in panel.lines(view, width):
                assert line_width(line) <= max(width, 56)  # a narrower terminal shows one sentence instead


def test_sparklines() -> None:
    assert sparkline([0, 4, 8], 5) == "  ▁▄█"
    assert sparkline([None, 2], 2, top=4.0) == " ▄"
    assert sparkline([1, 2, 3], 2) == "▅█" and sparkline([], 3) == "   " and sparkline([1.0], 0) == ""
