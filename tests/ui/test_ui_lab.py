"""The lab screen: replayed by hand-made records, and live on the real engine process."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.widgets import Input

from tutor.journal.events import LabRun
from tutor.labs.registry import get_kind
from tutor.trace.codec import read_trace
from tutor.trace.store import TraceStore
from tutor.ui.app import TutorApp
from tutor.ui.screens.inspector import InspectorScreen
from tutor.ui.screens.knobs import KnobsScreen
from tutor.ui.screens.lab import LabScreen
from tutor.ui.services import Services
from tutor.ui.widgets.transport import Transport

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]


def replay(services: Services, store: TraceStore, *, ascii_only: bool = False) -> TutorApp:
    kind = get_kind("paged")
    return TutorApp(
        services,
        ascii_only=ascii_only,
        first=lambda: LabScreen(services, kind, kind.settings({}), watch=("Watch the blocks.",), trace=store),
    )


def live(services: Services, kind_id: str, **knobs: object) -> TutorApp:
    kind = get_kind(kind_id)
    return TutorApp(services, first=lambda: LabScreen(services, kind, kind.settings(knobs), lesson=kind_id))


def lab(app: TutorApp) -> LabScreen:
    assert isinstance(app.screen, LabScreen)
    return app.screen


async def test_replay_is_driven_by_keys(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "step 0/3" in text(app) and "● MEASURED hand-made" in text(app))
        await pilot.press("full_stop", "full_stop")
        await until(pilot, lambda: "step 2/3" in text(app) and "2:AB" in text(app))
        await pilot.press("comma")
        await until(pilot, lambda: "step 1/3" in text(app) and "2:AB" not in text(app))
        await pilot.press("end")
        await until(pilot, lambda: "step 3/3" in text(app) and "B starts again" in text(app))
        await pilot.press("home")
        await until(pilot, lambda: "step 0/3" in text(app))
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: "2×" in text(app))
        await pilot.press("less_than_sign", "less_than_sign")
        await until(pilot, lambda: "0.5×" in text(app))
        await pilot.press("g")
        await until(pilot, lambda: "Go to step" in text(app))
        await pilot.press("2", "enter")
        await until(pilot, lambda: "step 2/3" in text(app))
        await pilot.press("space")
        await until(pilot, lambda: "step 3/3" in text(app))
        await pilot.press("f", "space")  # at the end: once more from the start
        await until(pilot, lambda: lab(app).session.step < 3)
        await until(pilot, lambda: "step 3/3" in text(app))


async def test_slider_takes_a_click(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "step 0/3" in text(app))
        row = text(app).splitlines()[1]
        await pilot.click(Transport, offset=(row.index("]") - 1, 0))
        await until(pilot, lambda: "step 3/3" in text(app))


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
async def test_narrow_terminals_get_tabs(
    services: Services, serving_store: TraceStore, text: Text, until: Until, size: tuple[int, int]
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "step 0/3" in text(app))
        await pilot.press("g")
        await until(pilot, lambda: "Go to step" in text(app))
        await pilot.press("2", "enter", "2")
        await until(pilot, lambda: "KV BLOCKS" in text(app) and "A . s . . B" in text(app))
        assert "SLOTS" not in text(app)
        await pilot.press("d")
        await until(pilot, lambda: "12 cells compared" in text(app))
        x = text(app).splitlines()[2].index("slots")
        await pilot.click(offset=(x, 2))
        await until(pilot, lambda: "0 A decode" in text(app))


async def test_resize_at_any_moment(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("end")
        for size in ((80, 24), (40, 10), (60, 16), (200, 60), (110, 24), (120, 40)):
            await pilot.resize_terminal(*size)
            if size == (40, 10):
                await until(pilot, lambda: "too small" in text(app))
            else:
                await until(pilot, lambda: "SLOTS" in text(app) and "step 3/3" in text(app))
        await until(pilot, lambda: "KV BLOCKS" in text(app) and "LLAMA.CPP" in text(app))
        await pilot.press("d")
        await until(pilot, lambda: "LLAMA.CPP" not in text(app))
        await pilot.press("d")
        await until(pilot, lambda: "12 cells compared" in text(app))


async def test_inspector_tells_the_life_up_to_the_cursor(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("g")
        await until(pilot, lambda: "Go to step" in text(app))
        await pilot.press("2", "enter")
        await until(pilot, lambda: "step 2/3" in text(app))
        lab(app).panels["blocks"].focus()
        await pilot.press("right", "right", "right", "enter")
        await until(pilot, lambda: isinstance(app.screen, InspectorScreen))
        await until(pilot, lambda: "KV block 2" in text(app))
        assert "held by A, B (ref_cnt 2)" in text(app) and "is shared with B" in text(app)
        assert "given back" not in text(app)
        await pilot.press("escape")
        lab(app).panels["queues"].focus()
        await pilot.press("enter")
        await until(pilot, lambda: "Request A" in text(app))
        await pilot.press("escape")
        lab(app).panels["slots"].focus()
        await pilot.press("enter")
        await until(pilot, lambda: "Slot 0" in text(app) and "is taken by A" in text(app))


async def test_watch_and_help_and_save(
    services: Services, serving_store: TraceStore, text: Text, until: Until, folders: Path
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("w")
        await until(pilot, lambda: "• Watch the blocks." in text(app))
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: "Keys: a lab" in text(app) and "save the trace" in text(app))
        await pilot.press("escape", "x")
        saved = folders / "data" / "traces"
        await until(pilot, lambda: saved.is_dir() and list(saved.glob("paged-*.jsonl")))
        assert read_trace(next(saved.glob("*.jsonl"))).records == serving_store.records
        await until(pilot, lambda: "Saved to" in text(app))


async def test_a_save_that_fails_is_one_sentence(
    services: Services, serving_store: TraceStore, text: Text, until: Until, folders: Path
) -> None:
    (folders / "data").mkdir(exist_ok=True)
    (folders / "data" / "traces").write_text("a file where the folder should be")
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("x")
        await until(pilot, lambda: "Cannot write the trace" in text(app))


async def test_ascii_lab_is_all_ascii(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    app = replay(services, serving_store, ascii_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("end")
        await until(pilot, lambda: "step 3/3" in text(app))
        assert text(app).isascii()


async def test_an_idle_lab_repaints_nothing(
    services: Services, serving_store: TraceStore, text: Text, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("end")
        await until(pilot, lambda: "step 3/3" in text(app))
        await pilot.pause()
        painted: list[object] = []
        monkeypatch.setattr(app, "_display", lambda screen, update: painted.append(update))
        for _ in range(20):
            lab(app)._tick()
        await pilot.pause()
        assert [update for update in painted if update is not None] == []


async def test_a_slow_link_gets_fewer_repaints(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    app = replay(services, serving_store)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "step 0/3" in text(app) and "● MEASURED hand-made" in text(app))
        lab(app)._pace.period = 3600.0  # as if repaints had been late for long
        await pilot.press("end")
        await until(pilot, lambda: lab(app).session.step == 3)
        lab(app)._tick()
        await pilot.pause()
        assert "step 0/3" in text(app)
        lab(app)._pace.period = lab(app)._pace.interval
        await until(pilot, lambda: "step 3/3" in text(app))


async def test_live_request_lab_then_other_knobs(services: Services, text: Text, until: Until) -> None:
    app = live(services, "request", max_tokens=6)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "● MEASURED SmolLM2" in text(app))
        await pilot.press(*["greater_than_sign"] * 4)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "finished" in text(app) and "● stop" in text(app))
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, KnobsScreen))
        field = app.screen.query_one("#knob-max_tokens", Input)
        field.value = "999"
        await pilot.press("enter")
        await until(pilot, lambda: "max_tokens goes from 1 to 128" in text(app))
        field.value = "2"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LabScreen) and "max_tokens 2 reached" in text(app))
        await pilot.press("escape")
    runs = [event for event in services.journal.read().events if isinstance(event, LabRun)]
    assert len(runs) == 2 and all(run.lesson == "request" and run.steps > 0 for run in runs)


async def test_live_paged_lab_pauses_steps_and_agrees_with_llama_cpp(
    services: Services, text: Text, until: Until
) -> None:
    app = live(services, "paged", requests=2)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: lab(app).session.last_step >= 3)
        await pilot.press("space")
        await until(pilot, lambda: "paused" in text(app))
        before = lab(app).session.last_step
        await pilot.press("full_stop")
        await until(pilot, lambda: f"step {before + 1}/{before + 1}" in text(app))
        await pilot.press("comma")
        await until(pilot, lambda: "looking back" in text(app) and f"step {before}/{before + 1}" in text(app))
        await pilot.press("f")
        await until(pilot, lambda: lab(app).session.last_step > before + 1)
        await until(pilot, lambda: ", 0 differ" in text(app))


async def test_a_dead_worker_shows_its_last_words_and_starts_again(
    services: Services, text: Text, until: Until
) -> None:
    app = live(services, "paged")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: lab(app).session.last_step >= 1)
        process = lab(app).session._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(pilot, lambda: "the engine died" in text(app) and "SIGKILL" in text(app))
        await pilot.press("r")
        await until(pilot, lambda: "the engine died" not in text(app) and lab(app).session.last_step >= 1)


async def test_a_missing_model_is_a_sentence_and_the_app_goes_on(
    make_services: Callable[..., Services], text: Text, until: Until
) -> None:
    services = make_services(model="/nowhere/model.gguf")
    app = live(services, "request")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "the engine died" in text(app) and "/nowhere/model.gguf" in text(app))
        assert "Traceback" not in text(app)
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys: a lab" in text(app))
