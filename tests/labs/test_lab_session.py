"""A lab in its real child process: transport, commands, death and restart."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tutor.labs.registry import get_kind
from tutor.labs.session import LabSession
from tutor.llama.messages import Abort, Submit
from tutor.trace.codec import read_trace
from tutor.trace.playback import Playback
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView

DEADLINE = 60.0


class Watched(LabSession):
    """A session that can be waited for."""

    def __init__(self, kind_id: str, **knobs: object) -> None:
        self.arrived = asyncio.Event()
        kind = get_kind(kind_id)
        super().__init__(kind, kind.settings(knobs), on_change=self.arrived.set, steps_per_second=0.0)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                self.tick(0.0)
                if condition():
                    return
                await self.arrived.wait()
                self.arrived.clear()

    @property
    def shown(self) -> LabView:
        assert self.view is not None
        return self.view


@pytest.fixture
async def session() -> AsyncIterator[Watched]:
    made = Watched("paged", requests=2)
    yield made
    await made.stop()


async def test_live_views_equal_the_fold_of_the_saved_trace(session: Watched, tmp_path: Path) -> None:
    live: dict[int, LabView] = {}
    await session.start()
    while session.status not in ("done", "dead"):
        await session.until(lambda: session.last_step > len(live) or session.status in ("done", "dead"))
        # A step that has a successor is complete.
        for step in range(len(live), session.last_step):
            assert session.playback is not None
            session.playback.seek(step)
            live[step] = session.shown
            session.playback.follow()
    path = tmp_path / "t.jsonl"
    session.save(path)
    replay = Playback(read_trace(path), follow=False)
    assert len(live) > 20
    for step in reversed(range(len(live))):
        replay.seek(step)
        assert replay.view == live[step]


async def test_pause_step_and_rewind(session: Watched) -> None:
    await session.start()
    await session.until(lambda: session.status == "running" and session.last_step >= 3)
    await session.toggle_pause()
    await session.until(lambda: session.status == "paused")
    at = session.last_step
    await session.step_forward()
    await session.until(lambda: session.last_step == at + 1 and session.shown.serving.last is not None)
    newest = session.shown
    await session.step_back()
    assert session.step == at and session.shown != newest
    await session.step_forward()
    assert session.step == at + 1 and session.shown == newest
    await session.seek(1)
    assert session.step == 1 and session.last_step == at + 1
    await session.follow()
    await session.until(lambda: session.status == "done")
    assert session.step == session.last_step


async def test_submit_and_abort(session: Watched) -> None:
    await session.start()
    await session.until(lambda: session.last_step >= 2)
    await session.send(Submit("z", "Z", "100, 101, 102,", 8))
    await session.until(lambda: session.shown.serving.request("z") is not None)
    await session.send(Abort("a"))
    await session.until(lambda: session.status == "done")
    aborted = session.shown.serving.request("a")
    assert aborted is not None and aborted.finish_reason == "abort" and not aborted.block_ids
    added = session.shown.serving.request("z")
    assert added is not None and added.num_output_tokens == 8
    await session.send(Abort("nobody"))
    await session.until(lambda: "no request nobody" in session.refusal)
    await session.send(Submit("y", "Y", "5, 6,", 4))
    await session.until(lambda: session.status == "done" and session.shown.serving.request("y") is not None)


async def test_a_killed_worker_is_reported_and_can_be_restarted(session: Watched) -> None:
    await session.start()
    await session.until(lambda: session.last_step >= 2)
    assert session._process is not None
    os.kill(session._process.pid, signal.SIGKILL)
    await session.until(lambda: session.status == "dead")
    assert "SIGKILL" in session.error
    assert "Lost with it: A (" in session.error and "B (" in session.error
    assert session.shown.step >= 2, "what was recorded is still there"
    await session.rerun(session.knobs)
    await session.until(lambda: session.status == "done")
    assert session.error == ""


async def test_last_words_of_a_worker_that_cannot_start() -> None:
    session = Watched("paged")
    session._model_path = "/nowhere/model.gguf"
    await session.start()
    await session.until(lambda: session.status == "dead")
    assert "/nowhere/model.gguf" in session.error and "does not exist" in session.error
    await session.stop()


async def test_impossible_knobs_are_a_sentence() -> None:
    session = Watched("paged", max_num_seqs=8, token_budget=8, num_blocks=4)
    await session.start()
    await session.until(lambda: session.status == "dead")
    assert "needs" in session.error and "blocks" in session.error
    await session.stop()


async def test_stopping_leaves_no_process(session: Watched) -> None:
    await session.start()
    await session.until(lambda: session.last_step >= 1)
    process = session._process
    assert process is not None
    await session.stop()
    assert process.returncode is not None and session.status == "stopped"


def test_a_replay_has_no_process() -> None:
    kind = get_kind("paged")
    from tutor.trace.events import TraceHeader

    store = TraceStore(TraceHeader(lab="paged", clock="wall", provenance="measured", model="m"))
    session = LabSession(kind, kind.settings({}), trace=store)
    asyncio.run(session.start())
    assert session.status == "replay" and session.view is not None and not session.is_live
