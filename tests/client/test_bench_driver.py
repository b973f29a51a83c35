"""What the client does first when answers end together: it reads what waits, then it sends.

No time passes here. The clock is a number that only sending moves, and the server is the other end of a
socket pair in the same event loop. So a chunk that is read after a request was sent has a later time.
"""

from __future__ import annotations

import asyncio
import socket
import types
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

import tutor.client.bench.stream
from tutor.client.bench.driver import Driver, Progress, Run
from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load, Ratio, make_items

COST = 10.0  # seconds of CPU that sending takes, so that one late reading is plain
TEXT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
END = b'data: {"choices": [{"delta": {"content": "b"}, "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'


class Stage(httpx2.AsyncBaseTransport):
    """Each request gets a socket of its own. `sent` counts the requests."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent = 0
        self.far: list[socket.socket] = []
        self._near: list[socket.socket] = []
        self.waiting: Callable[[], None] = lambda: None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent += 1
        self.now += COST
        near, far = socket.socketpair()
        near.setblocking(False)
        self._near.append(near)
        self.far.append(far)
        self.waiting()
        return httpx2.Response(200, stream=_Received(near))

    def tell(self, index: int, data: bytes, *, last: bool = False) -> None:
        self.far[index].sendall(data)
        if last:
            self.far[index].shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        for end in (*self._near, *self.far):
            end.close()


class _Received(httpx2.AsyncByteStream):
    def __init__(self, near: socket.socket) -> None:
        self._near = near

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        while received := await loop.sock_recv(self._near, 65536):
            yield received


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    clock = types.SimpleNamespace(perf_counter=lambda: made.now)
    monkeypatch.setattr(tutor.client.bench.stream, "time", clock)
    return made


async def drive(stage: Stage, requests: int, watch: Callable[[Progress], None] | None = None) -> Run:
    load = Load(
        arrivals="closed", requests=requests, concurrency=2, input_tokens=parse_lengths("5"),
        output_tokens=parse_lengths("2"),
    )  # fmt: skip
    async with httpx2.AsyncClient(transport=stage, base_url="http://stage") as client:
        driver = Driver(client, Target("scripted"), make_items(load, Ratio()), load)
        return await asyncio.wait_for(driver.run(watch), 20)


async def test_answers_that_end_together_are_read_before_the_next_request_is_sent(stage: Stage) -> None:
    loop = asyncio.get_running_loop()

    def both_ends() -> None:
        for index in (0, 1):
            stage.tell(index, TEXT + END, last=True)

    def answer() -> None:
        if stage.sent == 2:
            loop.call_soon(loop.call_soon, both_ends)  # both readers wait by then
        elif stage.sent > 2:
            stage.tell(stage.sent - 1, TEXT + END, last=True)

    stage.waiting = answer
    run = await drive(stage, 4)
    assert [record.error for record in run.records] == [""] * 4
    first, second = run.records[0], run.records[1]
    assert second.sent_at == first.sent_at + COST
    # both ended at the same moment; the third request left after that
    assert first.finished_at == second.finished_at == 2 * COST == run.records[2].sent_at
    assert run.records[3].sent_at == 3 * COST


async def test_a_chunk_just_behind_the_end_of_another_answer_is_read_first_too(stage: Stage) -> None:
    """The server writes to one socket after the other: the second chunk is there when the first is read."""
    loop = asyncio.get_running_loop()

    def answer() -> None:
        if stage.sent == 2:
            loop.call_soon(loop.call_soon, lambda: stage.tell(0, TEXT + END, last=True))
        elif stage.sent > 2:
            stage.tell(stage.sent - 1, TEXT + END, last=True)

    def ended(progress: Progress) -> None:
        if progress.done == 1:
            stage.tell(1, TEXT + END, last=True)

    stage.waiting = answer
    run = await drive(stage, 3, ended)
    assert run.records[0].finished_at == run.records[1].finished_at == 2 * COST
    assert run.records[2].sent_at == 2 * COST
