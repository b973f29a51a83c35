"""The trace that forgets its beginning shows the same present as the whole one."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from endpoint_kit import Running, Start, wait_for

from tutor.endpoint.rolling import RollingTrace, state_as_events
from tutor.trace.events import RequestPreempted, TraceRecord
from tutor.trace.playback import Playback
from tutor.trace.store import TraceStore
from tutor.trace.views import ServingView


@pytest.fixture(scope="module")
def server(start: Start) -> Running:
    return start(traced=True, slots=3, blocks=9)  # too few blocks: some requests are preempted


async def load(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        prompts = ["1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"] * 4 + ["a b c", "Once upon a time"]
        bodies = [{"prompt": p, "max_tokens": 30, "ignore_eos": True} for p in prompts]
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}


def present(view: ServingView) -> object:
    """What a screen shows of now: slots, blocks, and the requests that live or still hold something."""
    requests = [
        (r.request_id, r.status, r.slot, r.num_output_tokens, r.text, sorted(r.block_ids), r.arrived_at)
        for r in view.requests
        if r.status != "finished" or r.block_ids or r.slot is not None
    ]
    blocks = [(b.block_id, b.ref_cnt, sorted(b.owners), b.block_hash) for b in view.blocks]
    return sorted(requests), blocks, [(s.slot, s.request_id) for s in view.slots]


@pytest.fixture(scope="module")
def records(server: Running) -> list[TraceRecord]:
    asyncio.run(load(server.url))
    wait_for(server.is_empty)
    records = [TraceRecord(i, r.ts, r.step, r.event) for i, r in enumerate(server.records)]
    assert any(isinstance(r.event, RequestPreempted) for r in records)
    return records


def test_the_beginning_can_be_forgotten_at_any_record(server: Running, records: list[TraceRecord]) -> None:
    """Also between a preemption, or an end, and the release of its blocks and its slot."""
    whole = TraceStore(server.headers[-1])
    playback = Playback(whole)
    between = 0
    for record in records:
        whole.append(record)
        playback.follow()
        view = playback.view
        short = TraceStore(server.headers[-1])
        for ts, event in state_as_events(view):
            short.append(TraceRecord(len(short), ts, record.step, event))
        cut = Playback(short)
        cut.follow()
        assert present(cut.view.serving) == present(view.serving), record
        between += any(r.block_ids and r.status in ("preempted", "finished") for r in view.serving.requests)
    assert between > 6, "as many cuts as there are ends, and one at a preemption"


def test_what_is_forgotten_does_not_show(server: Running, records: list[TraceRecord]) -> None:
    whole = TraceStore(server.headers[-1])
    playback = Playback(whole)
    rolling = RollingTrace(server.headers[-1], most=120)
    num_forgotten = 0
    for record in records:
        before = rolling.store
        whole.append(record)
        rolling.append([record])
        num_forgotten += rolling.store is not before
        assert len(rolling.store) <= 121
        playback.follow()
        rolling.playback.follow()
        assert present(rolling.playback.view.serving) == present(playback.view.serving), record
    assert num_forgotten >= 3
    assert rolling.playback.step == playback.step
