"""An engine that lives but does nothing: it is killed and started again, and who waited is told so."""

from __future__ import annotations

import asyncio
import os
import signal

import httpx2
import pytest
from endpoint_kit import Running, Start, wait_for

from tutor.endpoint import messages as msg
from tutor.endpoint.in_flight import InFlight
from tutor.endpoint.observer import NO_STATS, Observer
from tutor.endpoint.watchdog import Watchdog

LIMIT = 2.0
LONG = {"prompt": "1, 2, 3,", "max_tokens": 1000, "ignore_eos": True, "temperature": 0}
STEP = msg.Stepped(0.0, 0.1, 1, [], NO_STATS)
TOLD = msg.Tokenized(1, [], [])


@pytest.fixture(scope="module")
def server(start: Start) -> Running:
    return start(slots=2, hang_limit=LIMIT)


async def test_a_stopped_engine_is_killed_and_its_queue_told(server: Running) -> None:
    """Running, waiting and streaming requests get a 503 each; the next engine answers."""
    first = server.engine_pid
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        whole = [asyncio.create_task(client.post("/v1/completions", json=LONG)) for _ in range(3)]
        await asyncio.to_thread(wait_for, lambda: server.server.observer.latest.num_running == 2)
        os.kill(first, signal.SIGSTOP)
        answers = [await task for task in whole]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert {answer.json()["error"]["code"] for answer in answers} == {"engine_unavailable"}
        await asyncio.to_thread(wait_for, lambda: server.server.engine.state == "ready")
        again = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        assert again.status_code == 200 and server.engine_pid != first
    assert server.deaths == [f"The engine hung: it did nothing for {LIMIT:g} s, so it was killed."]
    assert server.is_empty()


async def test_clients_that_leave_do_not_hide_a_hang(server: Running) -> None:
    """Nobody waits any more, but the engine owes the end of what was aborted."""
    pid, deaths = server.engine_pid, len(server.deaths)
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        async with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as stream:
            await anext(stream.aiter_lines())
            os.kill(pid, signal.SIGSTOP)
        await asyncio.to_thread(wait_for, lambda: len(server.deaths) > deaths)
        await asyncio.to_thread(wait_for, lambda: server.server.engine.state == "ready")
        assert (await client.post("/tokenize", json={"prompt": "a"})).status_code == 200


async def silent(limit: float, owes_step: bool, *heard: msg.Message) -> bool:
    """Does a watchdog report silence within three times its limit, when it hears these all the time?"""
    in_flight = InFlight(Observer("m"))
    in_flight.open_call()
    if owes_step:
        in_flight._leaving.add("r1")
    dog = Watchdog(limit, in_flight)
    dog.heard(msg.Ready(None, None, 0.0))  # type: ignore[arg-type]  # only its kind matters
    watch = asyncio.create_task(dog.silence())
    for _ in range(30):
        done, _pending = await asyncio.wait([watch], timeout=limit / 10)
        if done:
            return True
        for message in heard:
            dog.heard(message)
    watch.cancel()
    return False


async def test_only_steps_count_while_a_step_is_owed() -> None:
    """The thread that reads commands may answer while the one that computes hangs."""
    assert await silent(0.2, True, TOLD)
    assert not await silent(0.2, False, TOLD)
    assert not await silent(0.2, True, STEP)
    assert await silent(0.2, False)
    assert not await silent(0.0, True)
