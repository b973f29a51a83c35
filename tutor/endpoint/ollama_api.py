"""Ollama's routes that generate: /api/generate and /api/chat, with their durations in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tutor.endpoint import messages as msg
from tutor.endpoint import ollama_schemas as o
from tutor.endpoint.asks import seed
from tutor.endpoint.engine_client import Ask
from tutor.endpoint.errors import ApiError, unknown_model
from tutor.endpoint.generation import Generation, Piece
from tutor.endpoint.http import Stream, finish, read_json
from tutor.endpoint.refused import refuse, unsupported
from tutor.endpoint.service import Service, arrival, service_of
from tutor.serving.sampling import SamplingParams

Value = TypeVar("Value")

_encode = msgspec.json.Encoder().encode


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


class OllamaFormat:
    """Answers of /api/chat (`is_chat`) and /api/generate: one object, or one a line."""

    media_type = "application/x-ndjson"

    def __init__(self, model: str, is_chat: bool) -> None:
        self._model = model
        self._is_chat = is_chat

    def _answer(self, text: str, durations: dict[str, str | int] | None) -> bytes:
        more = msgspec.convert(durations or {}, o.Durations)
        fields = {name: getattr(more, name) for name in o.Durations.__struct_fields__}
        done = durations is not None
        if self._is_chat:
            message = o.OllamaAnswerMessage("assistant", text)
            return _encode(
                o.OllamaChatAnswer(model=self._model, created_at=_now(), message=message, done=done, **fields)
            )
        return _encode(
            o.GenerateAnswer(model=self._model, created_at=_now(), response=text, done=done, **fields)
        )

    def whole(self, generation: Generation) -> bytes:
        return self._answer("".join(generation.samples[0].text), self._durations(generation))

    def piece(self, generation: Generation, piece: Piece) -> bytes:
        return self._answer(piece.output.text, None) + b"\n" if piece.output.text else b""

    def end(self, generation: Generation) -> bytes:
        return self._answer("", self._durations(generation)) + b"\n"

    def error(self, error: ApiError) -> bytes:
        return _encode(o.Problem(error.message)) + b"\n"

    def only(self, reason: str, load_seconds: float = 0.0) -> Response:
        """The answer of a request that generates nothing: the model was loaded or unloaded."""
        told: dict[str, str | int] = {"done_reason": reason, "load_duration": _nanoseconds(load_seconds)}
        return Response(self._answer("", told), media_type="application/json")

    def _durations(self, generation: Generation) -> dict[str, str | int]:
        sample = generation.samples[0]
        return {
            "done_reason": sample.finish_reason,
            "total_duration": _nanoseconds(sample.last_token_at - generation.arrived_at),
            "load_duration": _nanoseconds(generation.load_seconds),
            "prompt_eval_count": sample.num_prompt_tokens,
            "prompt_eval_cached_count": sample.num_cached_tokens,
            "prompt_eval_duration": _nanoseconds(sample.first_token_at - sample.admitted_at),
            "eval_count": sample.num_tokens,
            "eval_duration": _nanoseconds(sample.last_token_at - sample.first_token_at),
        }


def _given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def ollama_ask(prompt: msg.Prompt, options: o.Options) -> Ask:
    """The defaults are Ollama's; num_predict 0 or less is as many tokens as fit. Raises ApiError (400)."""
    refuse(options, o.RefusedOptions)
    stop, top_p = options.stop, _given(options.top_p, 0.9)
    sampling = SamplingParams(
        temperature=_given(options.temperature, 0.8),
        top_k=1 if top_p == 0.0 else max(0, _given(options.top_k, 40)),
        top_p=top_p or 1.0,
        min_p=_given(options.min_p, 0.0),
        seed=seed(options.seed),
        repetition_penalty=_given(options.repeat_penalty, 1.1),
        penalty_last_n=max(-1, _given(options.repeat_last_n, 64)),
        presence_penalty=_given(options.presence_penalty, 0.0),
        frequency_penalty=_given(options.frequency_penalty, 0.0),
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(dict.fromkeys(stop)),
    )
    limit = _given(options.num_predict, -1)
    return Ask([prompt], sampling, limit if limit > 0 else None)


def _unloads(keep_alive: int | float | str | None) -> bool:
    """Ollama's keep_alive 0, as a number or a duration such as "0s"."""
    if isinstance(keep_alive, str):
        return keep_alive.rstrip("smh") == "0"
    return keep_alive == 0


def _check(service: Service, body: o.Generating, **refused: object) -> None:
    """Raises ApiError: 404 for another model, 400 for what this server does not have."""
    if not service.knows(body.model):
        raise unknown_model(body.model, service.model_name)
    refused |= {"format": body.format, "think": body.think, "logprobs": body.logprobs}
    for name, value in refused.items():
        if value:
            raise unsupported(name, name)


def _chat_prompt(messages: Sequence[o.OllamaMessage]) -> msg.ChatPrompt:
    """Raises ApiError (400)."""
    for message in messages:
        if message.role == "tool" or message.tool_calls:
            raise unsupported("A message of or for a tool", "messages")
        if message.images:
            raise unsupported("A message with images", "messages")
    return msg.ChatPrompt([(message.role, message.content or "") for message in messages])


async def generate(request: Request) -> Response:
    arrived_at, service = arrival(), service_of(request)
    body = await read_json(request, o.GenerateRequest)
    _check(
        service, body, suffix=body.suffix, images=body.images, template=body.template, context=body.context
    )  # fmt: skip
    prompt: msg.Prompt | None = None
    if body.prompt and body.raw:
        prompt = msg.TextPrompt(body.prompt)
    elif body.prompt:
        system = [("system", body.system)] if body.system else []
        prompt = msg.ChatPrompt([*system, ("user", body.prompt)])
    return await _respond(request, body, prompt, OllamaFormat(body.model, is_chat=False), arrived_at)


async def chat(request: Request) -> Response:
    arrived_at, service = arrival(), service_of(request)
    body = await read_json(request, o.OllamaChatRequest)
    _check(service, body, tools=body.tools)
    prompt = _chat_prompt(body.messages) if body.messages else None
    return await _respond(request, body, prompt, OllamaFormat(body.model, is_chat=True), arrived_at)


async def _respond(
    request: Request,
    body: o.Generating,
    prompt: msg.Prompt | None,
    answer: OllamaFormat,
    arrived_at: float,
) -> Response:
    """Without a prompt the model is only loaded, or unloaded. keep_alive 0 unloads after the answer."""
    service = service_of(request)
    unloads = _unloads(body.keep_alive)
    if prompt is None:
        return await _load_or_unload(service, answer, unloads)
    ask = ollama_ask(prompt, body.options or o.Options())
    generation = await service.engine.submit(ask, arrived_at)
    if body.stream is not False:
        return Stream(generation, answer, service.engine.unload if unloads else None)
    response = await finish(request, generation, answer)
    if unloads:
        await service.engine.unload()
    return response


async def _load_or_unload(service: Service, answer: OllamaFormat, unloads: bool) -> Response:
    if unloads:
        await service.engine.unload()
        return answer.only("unload")
    return answer.only("load", await service.engine.ready())


ROUTES = [
    Route("/api/generate", generate, methods=["POST"]),
    Route("/api/chat", chat, methods=["POST"]),
]
