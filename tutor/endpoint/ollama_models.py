"""Ollama's routes about the server and its model, which clients ask first: /api/version, tags, ps, show."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tutor.endpoint import ollama_schemas as o
from tutor.endpoint.errors import bad_request, unknown_model
from tutor.endpoint.http import json_answer, read_json
from tutor.endpoint.service import Service, service_of

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
NEVER = "9999-12-31T23:59:59Z"  # a model stays until it is unloaded on request


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _name(service: Service) -> str:
    return f"{service.model_name}:latest"


def _details(service: Service) -> o.Details:
    card = service.card
    return o.Details("gguf", card.architecture, card.size_label, FILE_TYPES.get(card.file_type, "unknown"))


async def root(_request: Request) -> Response:
    """Clients of Ollama look here to see whether a server is there."""
    return PlainTextResponse("inference-tutor is running")


async def version(request: Request) -> Response:
    return json_answer(o.Version(service_of(request).version))


async def tags(request: Request) -> Response:
    service = service_of(request)
    card, name = service.card, _name(service)
    tag = o.Tag(name, name, _stamp(card.modified_at), card.size, card.digest, _details(service))
    return json_answer(o.Tags([tag]))


async def loaded(request: Request) -> Response:
    """The model while the engine has it loaded. `size` is the file's; nothing of it is on a GPU."""
    service = service_of(request)
    if service.engine.state == "unloaded":
        return json_answer(o.Processes([]))
    card, name = service.card, _name(service)
    entry = o.Process(
        name, name, card.size, 0, card.digest, _details(service), NEVER, card.max_model_len
    )  # fmt: skip
    return json_answer(o.Processes([entry]))


async def show(request: Request) -> Response:
    """What the model's file says about it."""
    service = service_of(request)
    body = await read_json(request, o.ShowRequest)
    name = body.model or body.name
    if not name:
        raise bad_request("Send the name of a model.", "model", "invalid_value")
    if not service.knows(name):
        raise unknown_model(name, service.model_name)
    card = service.card
    info: dict[str, str | int] = {
        "general.architecture": card.architecture,
        "general.file_type": card.file_type,
        "general.name": card.name,
        "general.size_label": card.size_label,
        f"{card.architecture}.context_length": card.n_ctx_train,
        f"{card.architecture}.vocab_size": card.n_vocab,
    }
    return json_answer(
        o.ShowAnswer(card.chat_template, _details(service), info, ["completion"], _stamp(card.modified_at))
    )


ROUTES = [
    Route("/", root, methods=["GET"]),
    Route("/api/version", version, methods=["GET"]),
    Route("/api/tags", tags, methods=["GET"]),
    Route("/api/ps", loaded, methods=["GET"]),
    Route("/api/show", show, methods=["POST"]),
]
