"""A tutor in temporary folders, its screen as text, and waiting without sleeping."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tutor.curriculum.loader import load_course
from tutor.journal.store import Journal
from tutor.trace import events as ev
from tutor.trace.store import Recorder, TraceStore
from tutor.ui.app import TutorApp
from tutor.ui.services import Services

WAIT = 30.0


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data, workspace and colours of this test alone; reference values are cached for all tests of a run."""
    monkeypatch.setenv("TUTOR_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TUTOR_WORKSPACE", str(tmp_path / "work"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path


@pytest.fixture
def make_services(folders: Path) -> Callable[..., Services]:
    def make(**options: Any) -> Services:
        return Services(load_course(), Journal(folders / "data"), workspace=folders / "work", **options)

    return make


@pytest.fixture
def services(make_services: Callable[..., Services]) -> Services:
    return make_services()


@pytest.fixture
def app(services: Services) -> TutorApp:
    return TutorApp(services)


@pytest.fixture
def text() -> Callable[[TutorApp], str]:
    """The screen as the terminal gets it, line filters included."""

    def read(app: TutorApp) -> str:
        rows = []
        filters = app.get_line_filters()
        for strip in app.screen._compositor.render_strips():
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, app.screen.background_colors[1])
            rows.append("".join(segment.text for segment in strip))
        return "\n".join(rows)

    return read


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Let the app work until the condition holds and the frame it appeared in is whole (a box that is
    shown with it is laid out a moment later); fail with its screen when it never holds."""

    async def wait(pilot: Pilot[Any], condition: Callable[[], object], seconds: float = WAIT) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                strips = pilot.app.screen._compositor.render_strips()
                shown = "\n".join("".join(segment.text for segment in strip) for strip in strips)
                raise AssertionError(f"did not happen within {seconds} s; the screen is:\n{shown}")
            await pilot.pause(0.02)
        await pilot.pause()

    return wait


@pytest.fixture
def serving_store() -> TraceStore:
    """Two requests that share a block, by hand: A is done after step 3, B is preempted and comes back."""
    header = ev.TraceHeader(
        lab="paged", clock="wall", provenance="measured", model="hand-made", block_size=4, num_blocks=6,
        max_num_seqs=2, max_num_batched_tokens=8, knobs={"requests": 2},
    )  # fmt: skip
    store = TraceStore(header)
    ticks = iter(range(10_000))
    record = Recorder(store.append, lambda: next(ticks) / 10)
    record(ev.RequestArrived("a", "A", 5, 3, "one two"))
    record(ev.RequestQueued("a", 0, "no slot has been given yet"))
    record(ev.RequestArrived("b", "B", 6, 4, "one six"))
    record(ev.RequestQueued("b", 1, "A comes first"))
    record.step = 1
    record(ev.RequestScheduled("a", 0, "slot 0 is free"))
    record(ev.SlotAssigned(0, "a"))
    record(ev.BlocksAllocated("a", (2, 0), "5 tokens need 2 blocks of 4"))
    share = ev.ScheduledTokens("a", 0, 0, 5, "prefill", "gets all 5 tokens")
    record(ev.StepScheduled((share,), 1, 1, 8, "B waits for the budget"))
    record(ev.BlockStored(2, "feedbeefcafe", ""))
    record(ev.TokensEmitted("a", (7,), " red"))
    record(ev.StepExecuted(0.02, 5))
    record.step = 2
    record(ev.RequestScheduled("b", 4, "slot 1 is free"))
    record(ev.SlotAssigned(1, "b"))
    record(ev.PrefixMatched("b", "A", 4, (2,)))
    record(ev.BlocksAllocated("b", (5,), "2 tokens more"))
    shares = (
        ev.ScheduledTokens("a", 0, 5, 1, "decode", "decodes its newest token"),
        ev.ScheduledTokens("b", 1, 4, 2, "prefill", "gets its last 2 tokens"),
    )
    record(ev.StepScheduled(shares, 2, 0, 8))
    cells = ("M:0", "M:1", "M:2", "M:3", "0:4", "0:5", "1:4", "1:5", "", "", "", "")
    record(ev.CellMapRead(cells, (2, 2, 2, 2, 0, 0, 5, 5, -1, -1, -1, -1), 12, ()))
    record(ev.TokensEmitted("a", (8,), " blue"))
    record(ev.StepExecuted(0.02, 3))
    record.step = 3
    record(ev.RequestFinished("a", "length"))
    record(ev.BlocksFreed("a", (0, 2), (0,), "A is done"))
    record(ev.SlotReleased(0, "a"))
    record(ev.RequestPreempted("b", 6, "its blocks are needed"))
    record(ev.BlocksFreed("b", (5, 2), (5, 2), "B was preempted"))
    record(ev.SlotReleased(1, "b"))
    record(ev.Noted("B starts again from its prompt."))
    return store
