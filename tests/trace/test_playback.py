"""The cursor: folding a trace anywhere, from anywhere, gives the same picture as folding it straight."""

from __future__ import annotations

import random

import pytest

from tutor.trace import events as ev
from tutor.trace.events import TraceHeader, TraceRecord
from tutor.trace.playback import SNAPSHOT_EVERY, SPEEDS, Playback
from tutor.trace.state import LabState
from tutor.trace.store import Recorder, TraceStore
from tutor.trace.views import LabView

NUM_STEPS = 3 * SNAPSHOT_EVERY + 5
HEADER = TraceHeader(
    lab="paged", clock="virtual", provenance="simulated", model="m", block_size=4, num_blocks=64,
    max_num_seqs=2,
)  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 0.125
        return self.time


def fill(record: Recorder, last: int) -> None:
    """One request that decodes a token a step and takes a block every fourth."""
    while record.step < last:
        record.step += 1
        step = record.step
        if step == 1:
            record(ev.RequestArrived("r", "A", 1, NUM_STEPS))
            record(ev.RequestScheduled("r", 0, "slot 0 is free"))
            record(ev.SlotAssigned(0, "r"))
        if (step - 1) % 4 == 0:
            record(ev.BlocksAllocated("r", ((step - 1) // 4,), "full"))
        share = ev.ScheduledTokens("r", 0, step - 1, 1, "decode", "one token")
        record(ev.StepScheduled((share,), 1, 0, 8))
        record(ev.StepExecuted(0.125, 1))
        record(ev.TokensEmitted("r", (step,), f"{step} "))
        if step % 4 == 0:
            record(ev.BlockStored(step // 4 - 1, f"h{step}", ""))


@pytest.fixture
def store() -> TraceStore:
    made = TraceStore(HEADER)
    fill(Recorder(made.append, Clock()), NUM_STEPS)
    return made


def straight(store: TraceStore, step: int) -> LabView:
    state = LabState(store.header)
    for record in store.records[: store.step_end(step)]:
        state.apply(record)
    return state.view()


def test_any_walk_shows_what_a_straight_fold_shows(store: TraceStore) -> None:
    playback = Playback(store, follow=False)
    walk = random.Random(5)
    for _ in range(60):
        match walk.randrange(3):
            case 0:
                playback.seek(walk.randrange(-3, NUM_STEPS + 9))
            case 1:
                playback.step_back()
            case _:
                playback.step_forward()
        assert playback.view == straight(store, playback.step)


def test_back_and_forward_returns_to_an_equal_view(store: TraceStore) -> None:
    playback = Playback(store)
    before = playback.view
    for _ in range(SNAPSHOT_EVERY + 3):
        playback.step_back()
    assert playback.view != before
    for _ in range(SNAPSHOT_EVERY + 3):
        playback.step_forward()
    assert playback.view == before


def test_the_view_is_the_same_object_until_the_cursor_moves(store: TraceStore) -> None:
    playback = Playback(store)
    assert playback.view is playback.view
    assert not playback.tick(10.0)
    first = playback.view
    playback.step_back()
    assert playback.view is not first


def test_following_a_growing_store_equals_reading_it_whole(store: TraceStore) -> None:
    live = TraceStore(HEADER)
    playback = Playback(live)
    for record in store.records:
        live.append(record)
        assert playback.tick(0.0)
    assert playback.view == straight(store, store.last_step)
    playback.seek(SNAPSHOT_EVERY)
    assert playback.view == straight(store, SNAPSHOT_EVERY)


def test_records_that_arrive_late_in_a_step_are_not_lost_by_a_snapshot(store: TraceStore) -> None:
    live = TraceStore(HEADER)
    playback = Playback(live)
    records = list(store.records)
    for record in records:
        live.append(record)
        playback.tick(0.0)
        if record.step == SNAPSHOT_EVERY + 1:
            playback.seek(SNAPSHOT_EVERY)
            assert playback.view == straight(store, SNAPSHOT_EVERY)
            playback.follow()


def test_a_paused_cursor_stays_while_records_arrive(store: TraceStore) -> None:
    live = TraceStore(HEADER)
    playback = Playback(live)
    for record in store.records[:40]:
        live.append(record)
    playback.tick(0.0)
    playback.pause()
    step = playback.step
    for record in store.records[40:]:
        live.append(record)
        assert not playback.tick(1.0)
    assert playback.step == step
    playback.follow()
    assert playback.step == store.last_step


def test_playing_at_a_speed(store: TraceStore) -> None:
    playback = Playback(store, steps_per_second=4, follow=False)
    playback.play()
    playback.tick(1.0)
    assert playback.step == 4
    playback.faster()
    assert playback.speed == 2.0
    playback.tick(0.5)
    assert playback.step == 8
    playback.tick(1000.0)
    assert playback.at_end and not playback.playing
    playback.play()
    assert playback.step == 0 and playback.playing


def test_speed_has_ends(store: TraceStore) -> None:
    playback = Playback(store)
    for _ in range(20):
        playback.faster()
    assert playback.speed == SPEEDS[-1]
    for _ in range(20):
        playback.slower()
    assert playback.speed == SPEEDS[0]


def test_the_fold_counts_what_the_blocks_hold(store: TraceStore) -> None:
    playback = Playback(store, follow=False)
    playback.seek(6)
    serving = playback.view.serving
    assert [block.num_tokens for block in serving.blocks[:3]] == [4, 2, 0]
    assert serving.blocks[0].block_hash == "h4" and serving.num_used_blocks == 2
    assert serving.requests[0].text == "1 2 3 4 5 6 "
    assert serving.slots[0].timeline[-1] == ("A", "decode") and serving.slots[1].phase == "idle"
    assert isinstance(store.records[0], TraceRecord)
