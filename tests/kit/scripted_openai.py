"""An OpenAI-shaped streaming server whose latencies are written down beforehand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Script:
    """How the next requests are answered. Seconds. `behave(n)` names what befalls the n-th streamed request:
    ok, 500, disconnect, error event, no usage, no finish, hang, stale (closed without
    an answer), gathered (chunks in pairs), empty (no text), double (two tokens a chunk), html (no stream),
    or early (half of the tokens that were asked for)."""

    ttft: float = 0.03
    gap: float = 0.01
    behave: Callable[[int], str] = lambda n: "ok"
    stall_until: float = 0.0  # of the server's clock: nothing begins before
    cached: int | None = 0
    refuses_ignore_eos: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0


class ScriptedServer:
    """Runs in a thread with a loop of its own. A prompt of n words counts n + 5 tokens."""

    def __init__(self) -> None:
        self.script = Script()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,))
        self._thread.start()
        started.wait()
        self.url = f"http://127.0.0.1:{self.port}"

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def now(self) -> float:
        return self._loop.time()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                length = next((int(x[15:]) for x in lines if x.lower().startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                await self._answer(lines[0].split()[1], body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == "/v1/models":
            return await self._json(writer, 200, {"data": [{"id": "scripted"}]})
        asked = json.loads(body)
        prompt = asked["messages"][0]["content"] if "messages" in asked else asked["prompt"]
        usage = {"prompt_tokens": len(prompt.split()) + 5, "completion_tokens": asked["max_tokens"]}
        if self.script.refuses_ignore_eos and "ignore_eos" in asked:
            return await self._json(writer, 400, {"error": {"message": "Unknown field: ignore_eos"}})
        if not asked.get("stream"):
            return await self._json(writer, 200, {"choices": [], "usage": usage})
        self.script.bodies.append(asked)
        self.script.in_flight += 1
        self.script.most_in_flight = max(self.script.most_in_flight, self.script.in_flight)
        try:
            await self._stream(asked, usage, self.script.behave(len(self.script.bodies) - 1), writer)
        finally:
            self.script.in_flight -= 1
        return None

    async def _stream(
        self, asked: dict[str, Any], usage: dict[str, Any], fate: str, writer: asyncio.StreamWriter
    ) -> None:
        script = self.script
        if fate == "stale":
            raise ConnectionError
        if fate == "500":
            return await self._json(writer, 500, {"error": {"message": "out of luck"}})
        if fate == "html":
            return await self._html(writer)
        if fate == "early":
            asked = asked | {"max_tokens": asked["max_tokens"] // 2}
            usage = usage | {"completion_tokens": asked["max_tokens"]}
        if script.cached is not None:
            usage = usage | {"prompt_tokens_details": {"cached_tokens": script.cached}}
        chat = "messages" in asked
        writer.write(HEAD)
        if chat:
            self._chunk(writer, {"choices": [{"delta": {"role": "assistant", "content": None}}]})
        await asyncio.sleep(max(0.0, script.stall_until - self.now()))
        await asyncio.sleep(script.ttft)
        for i in range(0, 0 if fate == "empty" else asked["max_tokens"], 2 if fate == "double" else 1):
            if fate in ("disconnect", "hang", "error event") and i == 2:
                return await self._break(fate, writer)
            piece = {"delta": {"content": f" w{i}"}} if chat else {"text": f" w{i}"}
            self._chunk(writer, {"choices": [piece]})
            if fate != "gathered" or i % 2:
                await writer.drain()
                await asyncio.sleep(script.gap if i + 1 < asked["max_tokens"] else 0)
        if fate != "no finish":
            self._chunk(writer, {"choices": [{"delta": {}, "finish_reason": "length"}]})
        if fate != "no usage":
            self._chunk(writer, {"choices": [], "usage": usage})
        self._send(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return None

    async def _break(self, fate: str, writer: asyncio.StreamWriter) -> None:
        if fate == "hang":
            await asyncio.sleep(600)
        if fate == "error event":
            self._chunk(writer, {"error": {"message": "the engine died"}})
            await writer.drain()
        raise ConnectionError

    def _chunk(self, writer: asyncio.StreamWriter, chunk: dict[str, Any]) -> None:
        self._send(writer, b"data: " + json.dumps(chunk).encode() + b"\n\n")

    @staticmethod
    def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    @staticmethod
    async def _html(writer: asyncio.StreamWriter) -> None:
        body = b"<!doctype html><title>Welcome</title>"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await writer.drain()

    @staticmethod
    async def _json(writer: asyncio.StreamWriter, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
