"""One streamed request: sent, read to its end, timed."""

from __future__ import annotations

import asyncio
import time

import httpx2
import msgspec

from tutor.client.bench.record import RequestRecord
from tutor.client.http import message_of, send, why
from tutor.client.sse import EventParser

JSON = {"Content-Type": "application/json"}
GATHERED = 0.0005  # seconds; no engine makes two tokens of one answer so soon after each other
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's own; `cache_n` counts prompt tokens taken from its cache."""

    cache_n: int | None = None


class _Error(msgspec.Struct):
    message: str = ""


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    timings: _Timings | None = None
    error: _Error | str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
encode = msgspec.json.Encoder().encode


class Target(msgspec.Struct, frozen=True):
    """Where requests go and what every body has. `endpoint`: chat or completions."""

    model: str
    endpoint: str = "chat"
    temperature: float = 0.0
    ignore_eos: bool = True

    @property
    def path(self) -> str:
        return PATHS[self.endpoint]

    def body(self, prompt: str, max_tokens: int, *, stream: bool = True) -> dict[str, object]:
        body: dict[str, object] = {"model": self.model, "max_tokens": max_tokens}
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        body["temperature"] = self.temperature
        if self.ignore_eos:
            body["ignore_eos"] = True
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body


class _Reader:
    """Collects what the chunks of one answer say."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.pieces: list[str] = []
        self.finished_at: float | None = None
        self.finish_reason = ""
        self.usage = Usage()
        self.cached: int | None = None
        self.coalesced = 0
        self.begun = False
        self.done = False
        self.error = ""

    def take(self, events: list[bytes], now: float) -> None:
        for event in events:
            self.begun = True
            if event == b"[DONE]":
                self.done = True
                continue
            chunk = _decode(event)
            if chunk.error:
                self.error = chunk.error if isinstance(chunk.error, str) else chunk.error.message
            for choice in chunk.choices:
                self._take_choice(choice, now)
            if chunk.usage is not None:
                self.usage = chunk.usage
                if chunk.usage.prompt_tokens_details is not None:
                    self.cached = chunk.usage.prompt_tokens_details.cached_tokens
            if self.cached is None and chunk.timings is not None:
                self.cached = chunk.timings.cache_n

    def _take_choice(self, choice: _Choice, now: float) -> None:
        delta = choice.delta
        text = choice.text if delta is None else delta.content or delta.reasoning_content or delta.reasoning
        if text:
            self.coalesced += bool(self.times) and now - self.times[-1] < GATHERED
            self.times.append(now)
            self.pieces.append(text)
        if choice.finish_reason:
            self.finished_at = now
            self.finish_reason = choice.finish_reason

    @property
    def problem(self) -> str:
        """Why a stream that came to its end is no answer, or nothing."""
        if self.error:
            return self.error
        return "the stream ended without a finish reason" if self.finished_at is None else ""

    def record(self, index: int, planned_at: float, sent_at: float, **fields: object) -> RequestRecord:
        counted = self.usage.completion_tokens
        whole = RequestRecord(
            index=index,
            planned_at=planned_at,
            sent_at=sent_at,
            token_times=tuple(self.times),
            finished_at=self.finished_at,
            num_input_tokens=self.usage.prompt_tokens,
            num_output_tokens=counted if counted is not None else len(self.times),
            counted_by_server=counted is not None,
            num_cached_tokens=self.cached,
            finish_reason=self.finish_reason,
            coalesced=self.coalesced,
            text="".join(self.pieces),
        )
        return msgspec.structs.replace(whole, **fields)


async def ask(
    client: httpx2.AsyncClient,
    target: Target,
    prompt: str,
    max_tokens: int,
    index: int = 0,
    planned_at: float | None = None,
) -> RequestRecord:
    """Send one request and read its answer. A failure is in the record, never raised.

    The clock is read when the HTTP library hands the bytes over, before their content is decoded.
    """
    content = encode(target.body(prompt, max_tokens))
    reader, parser = _Reader(), EventParser()
    sent_at = time.perf_counter()
    planned = sent_at if planned_at is None else planned_at
    request = client.build_request("POST", target.path, content=content, headers=JSON)
    status: int | None = None
    try:
        response, resent = await send(client, request, stream=True)
        try:
            if response.status_code != 200:
                status = response.status_code
                reader.error = f"{status}: {message_of(await response.aread())}"
            else:
                async for received in response.aiter_raw():
                    now = time.perf_counter()
                    reader.take(parser.feed(received), now)
                if not reader.begun:
                    kind = response.headers.get("Content-Type", "no content type")
                    reader.error = f"the answer is not a stream of events but {kind}"
        finally:
            await response.aclose()
    except httpx2.HTTPError as error:
        # what the server said before it hung up tells more than that it hung up
        return reader.record(index, planned, sent_at, error=reader.error or why(error))
    except msgspec.DecodeError as error:
        return reader.record(index, planned, sent_at, error=f"an event could not be read: {error}")
    except asyncio.CancelledError:
        return reader.record(index, planned, sent_at, cut=True)
    return reader.record(index, planned, sent_at, error=reader.problem, status=status, resent=resent)
