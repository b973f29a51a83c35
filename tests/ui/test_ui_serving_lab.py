"""The lab of the whole engine on screen: its two panels, and a knobs dialog that fits 80×24."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from textual.widgets import Input

from tutor.labs.registry import get_kind
from tutor.labs.scenario import Knob
from tutor.metrics.waste import kv_waste
from tutor.trace import events as ev
from tutor.trace.history import request_history
from tutor.trace.playback import Playback
from tutor.trace.store import Recorder, TraceStore
from tutor.trace.views import LabView
from tutor.ui.app import TutorApp
from tutor.ui.screens.knobs import KnobsScreen, two_columns
from tutor.ui.screens.lab import LabScreen
from tutor.ui.services import Services
from tutor.ui.widgets.panels import make_panel

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]


@pytest.fixture
def worked_store(serving_store: TraceStore) -> TraceStore:
    """B comes back after it was swapped out; drafts, a copy, and a sequence that goes down the tiers."""
    store = TraceStore(serving_store.header)
    ticks = iter(range(10_000))
    record = Recorder(store.append, lambda: next(ticks) / 10)
    for old in serving_store.records:
        record.step = old.step
        swapped = isinstance(old.event, ev.RequestPreempted)
        record(ev.RequestPreempted("b", 6, "its blocks are needed", "swap") if swapped else old.event)
    record.step = 4
    record(ev.RequestScheduled("b", 6, "resumes in slot 0"))
    record(ev.SlotAssigned(0, "b"))
    record(ev.BlocksAllocated("b", (1, 3, 4), "6 + 1 tokens need 3 blocks"))
    record(ev.SequenceLoaded("b", 5, 3 << 20, "loading is faster"))
    record(ev.StepScheduled((ev.ScheduledTokens("b", 0, 6, 3, "decode", "verifies 2 drafts"),), 1, 0, 8))
    record(ev.StepExecuted(0.25, 3))
    record(ev.TokensDrafted("b", (1, 2), "lookup"))
    record(ev.TokensVerified("b", (1,), (2,)))
    record(ev.BlockCopied("b", 1, 3, 2, "it is shared"))
    record(ev.SequenceMoved(1, "", "warm", 5, 3 << 20, "none", "saved when it left the cache"))
    record(ev.SequenceMoved(1, "warm", "cold", 5, 1 << 20, "turbo4", "warm needs room"))
    record(ev.SequenceMoved(2, "", "warm", 7, 1 << 19, "none", "saved when it left the cache"))
    return store


def end(store: TraceStore) -> LabView:
    return Playback(store).view


def lines(name: str, view: LabView, width: int = 70) -> str:
    picture = make_panel(name).picture(view, width)
    shown = ["".join(text for text, _ in line).rstrip() for line in picture.lines]
    return "\n".join([*shown, picture.note])


def test_worth_counts_each_mechanism(worked_store: TraceStore, serving_store: TraceStore) -> None:
    shown = lines("worth", end(worked_store))
    assert "11 tokens in 3 steps" in shown and "2 tokens; 5.50 computed for each" in shown
    assert "4 of 11 tokens from the cache (36%)" in shown, "restoring a swapped lane is no cache hit"
    assert "1 swapped out, 1 back: 6 tokens saved" in shown and "thrown away" not in shown
    assert "2: 1 accepted (50%), 1 wasted" in shown
    assert "2 saved, 1 loaded: 5 tokens not computed" in shown
    assert "12 compared with llama.cpp, 0 differ" in shown and "0.29 s in the engine" in shown
    before = lines("worth", end(serving_store))
    assert "1 thrown away: 6 tokens lost" in before and "nothing saved" in before


def test_memory_shows_waste_and_tiers(worked_store: TraceStore) -> None:
    view = end(worked_store)
    shown = lines("memory", view)
    assert [w.split() for w in shown.splitlines()[1:4]] == [
        ["█", "used", "9", "positions", "that", "hold", "a", "token"],
        ["▒", "internal", "3", "left", "over", "in", "part-filled", "blocks"],
        ["░", "reserved", "0", "in", "blocks", "held,", "not", "begun"],
    ]
    assert "longest run 1 of 3 free blocks" in shown
    assert "warm       1 sequence, 0.50 MiB" in shown and "cold       1 sequence, 1.00 MiB" in shown
    assert shown.index("7 tokens cache → warm") < shown.index("5 tokens warm → cold: warm needs room")


def test_mean_use_is_that_of_the_steps(worked_store: TraceStore) -> None:
    """Steps 1, 2 and 4 ran: A alone in two blocks, A and B with a shared one, B in three."""
    playback = Playback(worked_store, follow=False)
    held = []
    for step in (1, 2, 4):
        playback.seek(step)
        held.append(kv_waste(playback.view.serving))
    expected = sum(waste.used for waste in held) / sum(waste.held for waste in held)
    assert end(worked_store).serving.mechanisms.mean_use == pytest.approx(expected)


def test_an_entry_leaves_its_tier_when_it_is_gone(worked_store: TraceStore) -> None:
    record = Recorder(worked_store.append, lambda: 0.0)
    record._seq, record.step = len(worked_store), 5
    record(ev.SequenceMoved(1, "cold", "", 5, 1 << 20, "turbo4", "a longer one covers it"))
    view = end(worked_store)
    assert {tier.name: tier.num_bytes for tier in view.serving.mechanisms.tiers} == {
        "warm": 1 << 19,
        "cold": 0,
    }
    assert "5 tokens cold → gone" in lines("memory", view)


def test_the_inspector_tells_of_swaps_loads_and_copies(worked_store: TraceStore) -> None:
    told = "\n".join(entry.text for entry in request_history(worked_store.records, "b"))
    assert "is preempted and saves 6 computed tokens" in told
    assert "starts from 5 saved tokens: loading is faster" in told
    assert "copies 2 tokens to block 3" in told and "keeps 1 drafted tokens, drops 1" in told


async def test_the_knobs_fit_80_by_24(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    kind = get_kind("serving")
    given = kind.settings({"preemption": "swap"})
    app = TutorApp(services, first=lambda: LabScreen(services, kind, given, trace=serving_store))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "step 0/3" in text(app))
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, KnobsScreen))
        assert app.screen.query_one(".dialog").max_scroll_y == 0
        for knob in kind.knobs:
            field = app.screen.query_one(f"#knob-{knob.name}", Input)
            assert field.region.height == 1 and field.region.right <= 80 and field.region.bottom < 24
            assert knob.label in text(app) and len(knob.label) < 16
        assert all(heading in text(app) for heading in ("LOAD", "SCHEDULING", "MEMORY", "TIERS"))
        app.screen.query_one("#knob-admission", Input).focus()
        await until(pilot, lambda: "admission: fcfs, priority, shortest, longest_prefix" in text(app))
        app.screen.query_one("#knob-admission", Input).value = "loudest"
        await pilot.press("enter")
        await until(pilot, lambda: "admission is one of fcfs" in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))


async def test_changed_knobs_are_read_first(
    services: Services, serving_store: TraceStore, text: Text, until: Until
) -> None:
    kind = get_kind("serving")
    serving_store.header.knobs.update({"requests": 4, "turns": 2, "preemption": "swap"})
    app = TutorApp(services, first=lambda: LabScreen(services, kind, kind.settings({}), trace=serving_store))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "knobs: preemption swap  requests 4  turns 2" in text(app))


def test_two_columns_keep_groups_together_and_even() -> None:
    def knob(name: str, group: str) -> Knob:
        return Knob(name, name, "int", 1, "Help.", group=group)

    knobs = (*(knob(f"a{i}", "A") for i in range(3)), knob("b", "B"), *(knob(f"c{i}", "C") for i in range(4)))
    columns = two_columns(knobs)
    assert columns is not None
    assert [[group[0].group for group in column] for column in columns] == [["A", "B"], ["C"]]
    assert two_columns((*knobs, knob("d", ""))) is None
