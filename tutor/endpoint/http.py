"""Between HTTP and generations: reading a body, waiting beside a client who may leave, streaming to one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tutor.endpoint.errors import ApiError, ErrorAnswer, bad_request
from tutor.endpoint.formats import Format
from tutor.endpoint.generation import Generation
from tutor.endpoint.ollama_schemas import Problem

MAX_BODY = 4 << 20  # bytes; the longest prompt that fits the context is far below
BODY_SECONDS = 30.0  # for the whole of a body; a client that is slower than that hangs
OLLAMA = "/api/"
Body = TypeVar("Body")


class ClientGone(Exception):
    """The client has closed its connection; nobody reads an answer."""


async def read_body(request: Request, seconds: float = BODY_SECONDS) -> bytes:
    """Raises ApiError (408: it takes longer than `seconds`, 413, 415) or ClientGone."""
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() not in ("identity", ""):
        raise ApiError(
            415, f"A body with Content-Encoding: {coding} cannot be read; send it plain.",
            code="unsupported_content_encoding",
        )  # fmt: skip
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                data += part
                if len(data) > MAX_BODY:
                    raise ApiError(413, f"The body is larger than {MAX_BODY} bytes.", code="body_too_large")
    except ClientDisconnect as error:
        raise ClientGone from error
    except TimeoutError as error:
        raise ApiError(
            408, f"The body was not there after {seconds:g} s.", code="body_too_slow",
            headers={"connection": "close"},
        ) from error  # fmt: skip
    return bytes(data)


async def read_json(request: Request, kind: type[Body]) -> Body:
    """Decode and validate. Raises ApiError (400 with the field at fault, 408, 413, 415) or ClientGone."""
    data = await read_body(request)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at `$")
        field = where.rstrip("`").lstrip(".") or None
        # Many clients show the message alone, so it names the field as well.
        told = f"{sentence}." if field is None else f"{field}: {sentence[0].lower()}{sentence[1:]}."
        raise bad_request(told, field, "invalid_value") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"The body is not JSON: {error}.", code="invalid_json") from error


def json_answer(
    body: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def error_answer(path: str, error: ApiError) -> Response:
    """The error in the shape that clients of that path expect: Ollama's or OpenAI's."""
    body = Problem(error.message) if path.startswith(OLLAMA) else ErrorAnswer(error.body)
    return json_answer(body, error.status, error.headers)


async def _gone(receive: Receive) -> None:
    """Returns when the client has left. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def _watching(receive: Receive, generation: Generation) -> AsyncIterator[None]:
    """Meanwhile, abort the generation when the client leaves; abort it anyway when the block is left."""

    async def watch() -> None:
        await _gone(receive)
        generation.abort()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        generation.abort()
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


async def finish(request: Request, generation: Generation, answer: Format) -> Response:
    """Wait for all of the answer. Raises ApiError when the engine goes away, ClientGone."""
    async with _watching(request.receive, generation):
        async for _piece in generation.pieces():
            pass
    if any(not sample.finish_reason for sample in generation.samples):
        raise ClientGone
    return Response(answer.whole(generation), media_type="application/json")


class Stream(Response):
    """Sends each piece when the engine has it. A client that leaves ends the generation.

    `afterwards` runs when the last piece is out.
    """

    def __init__(
        self,
        generation: Generation,
        answer: Format,
        afterwards: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._generation = generation
        self._answer = answer
        self._afterwards = afterwards
        del self.headers["content-length"]
        self.headers["content-type"] = answer.media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation, answer = self._generation, self._answer

        async def put(data: bytes, more: bool = True) -> None:
            if data or not more:
                await send({"type": "http.response.body", "body": data, "more_body": more})

        async with _watching(receive, generation):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                async for piece in generation.pieces():
                    await put(answer.piece(generation, piece))
            except ApiError as error:
                await put(answer.error(error), more=False)
            else:
                await put(answer.end(generation), more=False)
        if self._afterwards is not None:
            await self._afterwards()
