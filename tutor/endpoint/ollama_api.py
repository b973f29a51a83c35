"""Ollama's routes: /api/tags, /api/version, /api/generate, /api/chat, with their durations in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tutor.endpoint import messages as msg
from tutor.endpoint import ollama_schemas as o
from tutor.endpoint.asks import seed, unsupported
from tutor.endpoint.engine_client import Ask
from tutor.endpoint.errors import ApiError, unknown_model
from tutor.endpoint.generation import Generation, Piece
from tutor.endpoint.http import Stream, finish, json_answer, read_json
from tutor.endpoint.service import Service, arrival, service_of
from tutor.serving.sampling import SamplingParams

# llama.cpp's numbers of file types, https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h
FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    32: "BF16",
}

_encode = msgspec.json.Encoder().encode


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


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
            message = o.OllamaMessage("assistant", text)
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


def ollama_ask(prompt: msg.Prompt, options: o.Options) -> Ask:
    """num_predict 0 or less is as many tokens as fit."""
    stop = options.stop
    sampling = SamplingParams(
        temperature=options.temperature,
        top_k=1 if options.top_p == 0.0 else options.top_k,
        top_p=options.top_p or 1.0,
        min_p=options.min_p,
        seed=seed(options.seed),
        repetition_penalty=options.repeat_penalty,
        penalty_last_n=max(-1, options.repeat_last_n),
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        stop=() if stop is None else (stop,) if isinstance(stop, str) else tuple(dict.fromkeys(stop)),
    )
    return Ask([prompt], sampling, options.num_predict if options.num_predict > 0 else None)


def _unloads(keep_alive: int | float | str | None) -> bool:
    """Ollama's keep_alive 0, as a number or a duration such as "0s"."""
    if isinstance(keep_alive, str):
        return keep_alive.rstrip("smh") == "0"
    return keep_alive == 0


def _check(service: Service, model: str, **refused: object) -> None:
    if not service.knows(model):
        raise unknown_model(model, service.model_name)
    for name, value in refused.items():
        if value:
            raise unsupported(name, name)


async def generate(request: Request) -> Response:
    arrived_at, service = arrival(), service_of(request)
    body = await read_json(request, o.GenerateRequest)
    _check(service, body.model, suffix=body.suffix, images=body.images, format=body.format)
    answer = OllamaFormat(body.model, is_chat=False)
    if not body.prompt:
        return await _load_or_unload(service, answer, body.keep_alive)
    prompt: msg.Prompt = msg.TextPrompt(body.prompt)
    if not body.raw:
        system = [("system", body.system)] if body.system else []
        prompt = msg.ChatPrompt([*system, ("user", body.prompt)])
    return await _respond(
        request, ollama_ask(prompt, body.options), answer, body.stream, arrived_at, body.keep_alive
    )


async def chat(request: Request) -> Response:
    arrived_at, service = arrival(), service_of(request)
    body = await read_json(request, o.OllamaChatRequest)
    _check(service, body.model, tools=body.tools, format=body.format)
    answer = OllamaFormat(body.model, is_chat=True)
    if not body.messages:
        return await _load_or_unload(service, answer, body.keep_alive)
    prompt = msg.ChatPrompt([(message.role, message.content) for message in body.messages])
    return await _respond(
        request, ollama_ask(prompt, body.options), answer, body.stream, arrived_at, body.keep_alive
    )


async def _respond(
    request: Request,
    ask: Ask,
    answer: OllamaFormat,
    stream: bool,
    arrived_at: float,
    keep_alive: int | float | str | None,
) -> Response:
    service = service_of(request)
    generation = await service.engine.submit(ask, arrived_at)
    if stream:
        return Stream(generation, answer)
    response = await finish(request, generation, answer)
    if _unloads(keep_alive):
        await service.engine.unload()
    return response


async def _load_or_unload(
    service: Service, answer: OllamaFormat, keep_alive: int | float | str | None
) -> Response:
    if _unloads(keep_alive):
        await service.engine.unload()
        return answer.only("unload")
    return answer.only("load", await service.engine.ready())


def _tags(service: Service) -> Sequence[o.Tag]:
    card = service.card
    details = o.Details("gguf", card.architecture, card.size_label, FILE_TYPES.get(card.file_type, "unknown"))
    name = f"{service.model_name}:latest"
    return [o.Tag(name, name, _stamp(card.modified_at), card.size, card.digest, details)]


async def tags(request: Request) -> Response:
    return json_answer(o.Tags(list(_tags(service_of(request)))))


async def version(request: Request) -> Response:
    return json_answer(o.Version(service_of(request).version))


ROUTES = [
    Route("/api/tags", tags, methods=["GET"]),
    Route("/api/version", version, methods=["GET"]),
    Route("/api/generate", generate, methods=["POST"]),
    Route("/api/chat", chat, methods=["POST"]),
]
