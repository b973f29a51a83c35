"""What clients do wrong and what happens to engines: clear answers, nothing leaked, never a 500."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from endpoint_kit import Running, Start, wait_for

MODEL = "SmolLM2-135M-Instruct.Q4_1"
LONG = {"prompt": "1, 2, 3,", "max_tokens": 1000, "ignore_eos": True, "temperature": 0}
BAD = (
    b"", b"{", b"[]", b"nul", b'{"prompt": 1}', b"\xff\xfe", b'{"prompt": "x", "max_tokens": 0}', b"null",
    b'{"prompt": "x", "temperature": 1e400}', b'{"prompt": "\\ud800"}', b'{"prompt": [1, "a"]}',
    b'{"prompt": []}', b'{"prompt": [[]]}', b'{"prompt": [99999999]}', b'{"prompt": [-1]}',
    b'{"prompt": "x", "stop": [""]}', b'{"prompt": "x", "n": 129}', b'{"prompt": "x", "seed": 1e99}',
    b'{"prompt": "x", "logprobs": 21}', b'{"prompt": "x", "best_of": 3}', b"[" * 5000,
    b'{"prompt": "x", "max_tokens": 9999999999999999999999}', b'{"prompt": null}', b'{"messages": []}',
)  # fmt: skip


@pytest.fixture(scope="module")
def server(start: Start) -> Running:
    return start(slots=2, max_waiting=2, blocks=96)


def num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_a_bad_body_is_the_clients_fault(server: Running, body: bytes) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["message"]


def test_an_empty_prompt_is_a_prompt(server: Running) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "", "max_tokens": 1})
    assert answer.status_code == 200 and answer.json()["usage"]["prompt_tokens"] == 1


def test_a_body_without_end_is_cut_off(server: Running) -> None:
    with server.client() as client:
        answer = client.post("/v1/completions", content=b'{"prompt": "' + b"x" * (5 << 20) + b'"}')
    assert answer.status_code == 413


def test_unknown_paths_and_methods(server: Running) -> None:
    with server.client() as client:
        assert client.get("/v1/nothing").json()["error"]["code"] == "unknown_url"
        wrong = client.get("/v1/completions")
        assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"


def test_other_sites_cannot_use_the_server(server: Running) -> None:
    """A page in the browser sends its own Origin; DNS rebinding a foreign Host."""
    with server.client() as client:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}):
            assert client.get("/v1/models", headers=headers).status_code == 403
        assert client.get("/v1/models", headers={"origin": "http://localhost:3000"}).status_code == 200


async def test_a_full_queue_answers_429_and_says_when(server: Running) -> None:
    """Two run, two wait, the fifth is turned away; when one leaves there is room again."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        streams = [client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) for _ in range(4)]
        tasks = [asyncio.create_task(stream.__aenter__()) for stream in streams]
        await asyncio.to_thread(wait_for, lambda: server.server.engine.in_flight.num_samples == 4)
        turned_away = await client.post("/v1/completions", json=LONG)
        assert turned_away.status_code == 429
        assert int(turned_away.headers["retry-after"]) >= 1
        assert turned_away.json()["error"]["type"] == "rate_limit_error"
        answers = [await task for task in tasks]
        await answers[0].aclose()
        await asyncio.to_thread(wait_for, lambda: server.server.engine.in_flight.num_samples == 3)
        async with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as room:
            assert room.status_code == 200
        for answer in answers[1:]:
            await answer.aclose()
    await asyncio.to_thread(wait_for, server.is_empty)
    assert server.metric("tutor:requests_rejected_total") == 1


async def one_request(client: httpx2.AsyncClient, rng: random.Random) -> int:
    """A request as clients make them: good, bad, or left alone at some point; 0 when we left."""
    kind = rng.random()
    if kind < 0.2:
        return (await client.post("/v1/completions", content=rng.choice(BAD))).status_code
    body = {"prompt": f"{rng.random()}", "max_tokens": rng.randint(1, 6), "n": rng.choice((1, 1, 1, 2))}
    path = "/v1/completions" if kind < 0.9 else "/api/generate"
    if path == "/api/generate":
        body = {"model": MODEL, "prompt": "Hi", "options": {"num_predict": 2}}
    body["stream"] = rng.random() < 0.5
    try:
        return (await client.post(path, json=body, timeout=rng.choice((60, 60, 0.02, 0.1, 0.2)))).status_code
    except httpx2.TimeoutException:
        return 0


async def soak(url: str, count: int, seed: int) -> Counter[int]:
    """`count` requests over more connections than the queue holds; who is turned away comes again later."""
    left = iter(range(count))
    seen: Counter[int] = Counter()

    async def work(client: httpx2.AsyncClient) -> None:
        for number in left:
            while (status := await one_request(client, random.Random(f"{seed} {number}"))) == 429:
                seen[status] += 1
                await asyncio.sleep(0.02)
            seen[status] += 1

    async with httpx2.AsyncClient(base_url=url) as client:
        await asyncio.gather(*(work(client) for _ in range(6)))
    return seen


async def test_a_bad_day_leaks_nothing(server: Running) -> None:
    """More of it: bench/endpoint_soak.py."""
    await soak(server.url, 40, seed=1)  # what is made once is made
    await asyncio.to_thread(wait_for, server.is_empty)
    counts = []
    for seed in (2, 3):
        seen = await soak(server.url, 40, seed)
        await asyncio.to_thread(wait_for, server.is_empty)
        assert set(seen) == {0, 200, 400, 429}, seen
        await asyncio.to_thread(wait_for, lambda: len(server.server._uvicorn.server_state.connections) == 0)
        tasks = asyncio.run_coroutine_threadsafe(_num_tasks(), server.loop).result()
        counts.append((num_open_files(), tasks))
    assert counts[0] == counts[1]
    assert not server.deaths


async def _num_tasks() -> int:
    return len(asyncio.all_tasks())


async def test_a_dead_engine_is_503_and_comes_back(start: Start) -> None:
    server = start(slots=2)
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
        waiting = asyncio.create_task(client.post("/v1/completions", json=LONG))
        async with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await asyncio.to_thread(wait_for, lambda: server.server.observer.latest.num_running == 2)
            os.kill(server.engine_pid, signal.SIGKILL)
            last = [line async for line in lines if line][-1]
        assert '"engine_unavailable"' in last
        whole = await waiting
        assert whole.status_code == 503 and whole.json()["error"]["code"] == "engine_unavailable"
        health = await client.get("/health")
        if health.status_code == 503:  # it may be back already
            assert health.json()["status"] == "restarting"
            refused = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
            assert refused.status_code in (200, 503)
        await asyncio.to_thread(wait_for, lambda: server.server.engine.state == "ready")
        again = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
        assert again.status_code == 200
    assert len(server.deaths) == 1 and server.metric("tutor:engine_deaths_total") == 1
    assert server.is_empty()
