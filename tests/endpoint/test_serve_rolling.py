"""The trace that forgets its beginning shows the same present as the whole one."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from endpoint_kit import Running, Start, wait_for

from tutor.endpoint.rolling import RollingTrace
from tutor.trace.events import TraceRecord
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
    """What a screen shows of now: slots, blocks, and the requests that are not over."""
    requests = [
        (r.request_id, r.status, r.slot, r.num_output_tokens, r.text, r.block_ids, r.arrived_at)
        for r in view.requests
        if r.status != "finished"
    ]
    blocks = [(b.block_id, b.ref_cnt, sorted(b.owners), b.block_hash) for b in view.blocks]
    return sorted(requests), blocks, [(s.slot, s.request_id) for s in view.slots]


def test_what_is_forgotten_does_not_show(server: Running) -> None:
    asyncio.run(load(server.url))
    wait_for(server.is_empty)
    records = [TraceRecord(i, r.ts, r.step, r.event) for i, r in enumerate(server.records)]
    assert any(type(r.event).__name__ == "RequestPreempted" for r in records)
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
