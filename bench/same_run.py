"""One run seen by two clients: a relay that makes one request of the two that ask for the same prompt.

Two runs after one another are two stretches of time on shared cores, and what differs between them is mostly
the machine. Here both clients send the same prompts to the relay. A prompt goes on to the server when both
have asked for it, and each chunk of the answer goes to both. What still differs is what each client measures,
and how much sooner one of the two asked: `SameRun.waits`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

import httpx2
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

CHAT = "/v1/chat/completions"
SIDES = 2


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part]


class _Body(msgspec.Struct):
    messages: list[_Message]
    stream: bool = False


class _Pair:
    """The chunks of one answer for two readers."""

    def __init__(self) -> None:
        self.readers: list[asyncio.Queue[bytes]] = []
        self.first_at = time.perf_counter()

    def join(self) -> asyncio.Queue[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.readers.append(queue)
        return queue


async def _chunks(queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    """Until the empty chunk that ends an answer."""
    while chunk := await queue.get():
        yield chunk


class SameRun:
    """The relay in front of the server at `root`. `prompts` are asked for by both; `concurrency` at a time.

    A streamed answer to any other prompt (a client's warm-up) ends only when the first `concurrency` shared
    prompts wait here, so that both clients begin together. `waits`: seconds by which one client of a pair
    asked sooner than the other.
    """

    def __init__(self, root: str, prompts: Iterable[str], concurrency: int) -> None:
        self._root = root
        self._shared = frozenset(prompts)
        self._concurrency = concurrency
        self._pairs: dict[str, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.waits: list[float] = []

    def app(self) -> Starlette:
        self._begun = asyncio.Event()
        self._client = httpx2.AsyncClient(base_url=self._root, timeout=None, trust_env=False)
        rest = Route("/{path:path}", self._pass, methods=["GET", "POST"])
        return Starlette(routes=[Route(CHAT, self._chat, methods=["POST"]), rest])

    async def _pass(self, request: Request) -> Response:
        answer = await self._client.request(
            request.method, request.url.path, content=await request.body(), headers=_headers(request)
        )
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def _chat(self, request: Request) -> Response:
        body = await request.body()
        asked = msgspec.json.decode(body, type=_Body)
        content = asked.messages[-1].content
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        if text in self._shared:
            return StreamingResponse(self._pair(text, body), media_type="text/event-stream")
        answer = await self._pass(request)
        if asked.stream:
            await self._begun.wait()
        return answer

    def _pair(self, text: str, body: bytes) -> AsyncIterator[bytes]:
        pair = self._pairs.setdefault(text, _Pair())
        queue = pair.join()
        if len(self._pairs) >= self._concurrency:
            self._begun.set()
        if len(pair.readers) == SIDES:
            self.waits.append(time.perf_counter() - pair.first_at)
            task = asyncio.create_task(self._relay(pair, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return _chunks(queue)

    async def _relay(self, pair: _Pair, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._client.stream("POST", CHAT, content=body, headers=headers) as answer:
            answer.raise_for_status()
            async for chunk in answer.aiter_raw():
                for queue in pair.readers:
                    queue.put_nowait(chunk)
        for queue in pair.readers:
            queue.put_nowait(b"")


def _headers(request: Request) -> dict[str, str]:
    return {"Content-Type": kind} if (kind := request.headers.get("content-type")) else {}


@contextmanager
def relaying(run: SameRun) -> Iterator[str]:
    """The relay in a thread of its own; gives its address."""
    server = uvicorn.Server(
        uvicorn.Config(
            run.app, factory=True, port=0, log_level="critical", lifespan="off", timeout_keep_alive=120
        )
    )
    socket = server.config.bind_socket()
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    try:
        while thread.is_alive() and not server.started:
            thread.join(0.05)
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
