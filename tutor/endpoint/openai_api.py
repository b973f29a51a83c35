"""OpenAI's routes: /v1/models, /v1/chat/completions, /v1/completions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tutor.endpoint import schemas as s
from tutor.endpoint.asks import chat_ask, completion_ask
from tutor.endpoint.engine_client import Ask
from tutor.endpoint.errors import unknown_model
from tutor.endpoint.formats import ChatFormat, CompletionFormat, Format
from tutor.endpoint.guard import request_id
from tutor.endpoint.http import Stream, finish, json_answer, read_json
from tutor.endpoint.service import Service, arrival, service_of


def model_entry(service: Service) -> s.ModelEntry:
    card = service.card
    return s.ModelEntry(
        service.model_name, "model", int(card.modified_at), "inference-tutor", card.max_model_len
    )


async def list_models(request: Request) -> Response:
    return json_answer(s.ModelList("list", [model_entry(service_of(request))]))


async def get_model(request: Request) -> Response:
    service, name = service_of(request), request.path_params["model"]
    if not name:  # /v1/models/
        return await list_models(request)
    if not service.knows(name):
        raise unknown_model(name, service.model_name)
    return json_answer(model_entry(service))


async def chat_completions(request: Request) -> Response:
    arrived_at, service = arrival(), service_of(request)
    body = await read_json(request, s.ChatRequest)
    _check_model(service, body.model)
    num_top = (body.top_logprobs or 0) if body.logprobs else None
    answer = ChatFormat(
        f"chatcmpl-{request_id(request)}", service.model_name, service.fingerprint, num_top,
        body.stream_options or s.StreamOptions(),
    )  # fmt: skip
    return await _respond(request, chat_ask(body), answer, bool(body.stream), arrived_at)


async def completions(request: Request) -> Response:
    arrived_at, service = arrival(), service_of(request)
    body = await read_json(request, s.CompletionRequest)
    _check_model(service, body.model)
    answer = CompletionFormat(
        f"cmpl-{request_id(request)}", service.model_name, service.fingerprint, body.logprobs,
        body.stream_options or s.StreamOptions(),
    )  # fmt: skip
    return await _respond(request, completion_ask(body), answer, bool(body.stream), arrived_at)


def _check_model(service: Service, name: str | None) -> None:
    """A request that names no model, or "", means the one that is served. Raises ApiError (404)."""
    if name and not service.knows(name):
        raise unknown_model(name, service.model_name)


async def _respond(request: Request, ask: Ask, answer: Format, stream: bool, arrived_at: float) -> Response:
    generation = await service_of(request).engine.submit(ask, arrived_at)
    return Stream(generation, answer) if stream else await finish(request, generation, answer)


ROUTES = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", get_model, methods=["GET"]),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
]
