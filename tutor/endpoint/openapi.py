"""The server's OpenAPI 3.1 description, made from the same structs that decode the requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from tutor.endpoint import ollama_schemas as o
from tutor.endpoint import schemas as s
from tutor.endpoint.errors import ErrorAnswer

JSON = "application/json"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
TEXT = "text/plain"
REF = "#/components/schemas/{name}"


@dataclass(frozen=True)
class Operation:
    """`answers`: media type -> the struct of the answer, None for one that is not JSON."""

    method: str
    path: str
    summary: str
    answers: dict[str, type[msgspec.Struct] | None]
    body: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = ()
    error: type[msgspec.Struct] = ErrorAnswer
    parameter: str = ""
    is_open: bool = False  # needs no key


BODY_ERRORS = (400, 408, 413, 415, 503)
GENERATION_ERRORS = (400, 404, 408, 413, 415, 429, 503)
OPERATIONS = (
    Operation("get", "/v1/models", "The served model, as a list.", {JSON: s.ModelList}, errors=(503,)),
    Operation(
        "get", "/v1/models/{model}", "The served model.", {JSON: s.ModelEntry}, errors=(404, 503),
        parameter="model",
    ),
    Operation(
        "post", "/v1/chat/completions", "Answer a chat (OpenAI).", {JSON: s.ChatAnswer, SSE: None},
        s.ChatRequest, GENERATION_ERRORS
    ),
    Operation(
        "post", "/v1/completions", "Continue a text (OpenAI).", {JSON: s.CompletionAnswer, SSE: None},
        s.CompletionRequest, GENERATION_ERRORS
    ),
    Operation(
        "post", "/tokenize", "Text to token ids.", {JSON: s.TokenizeAnswer}, s.TokenizeRequest, BODY_ERRORS
    ),
    Operation(
        "post", "/detokenize", "Token ids to text.", {JSON: s.DetokenizeAnswer}, s.DetokenizeRequest,
        BODY_ERRORS,
    ),
    Operation("get", "/health", "Are requests taken?", {JSON: s.Health}, is_open=True),
    Operation("get", "/metrics", "Prometheus metrics.", {TEXT: None}, is_open=True),
    Operation("get", "/api/tags", "The served model (Ollama).", {JSON: o.Tags}, None, (503,), o.Problem),
    Operation("get", "/", "Is a server there?", {TEXT: None}),
    Operation("get", "/api/ps", "The loaded model (Ollama).", {JSON: o.Processes}, None, (503,), o.Problem),
    Operation(
        "post", "/api/show", "What the model's file says (Ollama).", {JSON: o.ShowAnswer}, o.ShowRequest,
        (404, *BODY_ERRORS), o.Problem
    ),
    Operation("get", "/api/version", "The version (Ollama).", {JSON: o.Version}, error=o.Problem),
    Operation(
        "post", "/api/generate", "Continue a prompt (Ollama).",
        {JSON: o.GenerateAnswer, NDJSON: None}, o.GenerateRequest, GENERATION_ERRORS, o.Problem
    ),
    Operation(
        "post", "/api/chat", "Answer a chat (Ollama).", {JSON: o.OllamaChatAnswer, NDJSON: None},
        o.OllamaChatRequest,
        GENERATION_ERRORS, o.Problem
    ),
)  # fmt: skip

REASONS = {
    400: "The request cannot be carried out; the message says which field and why.",
    401: "The API key is missing or wrong.",
    403: "The Host or Origin header is not this server's.",
    404: "There is no such model.",
    408: "The body was not there in time.",
    413: "The body is too large.",
    415: "The body is compressed.",
    429: "The waiting queue is full; Retry-After says when to come again.",
    503: "The engine does not take requests; Retry-After says when to come again.",
}


@cache
def describe(version: str, needs_key: bool) -> bytes:
    """The description as JSON. With `needs_key`, all routes but the open ones ask for a bearer token."""
    _, components = msgspec.json.schema_components(_structs(), schema_hook=_anything, ref_template=REF)
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, needs_key)
    parts: dict[str, object] = {"schemas": components}
    if needs_key:
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "inference-tutor", "version": version},
            "paths": paths,
            "components": parts,
        }
    )


def _structs() -> list[type[msgspec.Struct]]:
    found: dict[type[msgspec.Struct], None] = {ErrorAnswer: None, o.Problem: None, s.ChatChunk: None}
    for operation in OPERATIONS:
        for struct in (operation.body, *operation.answers.values()):
            if struct is not None:
                found[struct] = None
    return list(found)


def _anything(_kind: type[object]) -> dict[str, object]:
    """Fields that are refused or passed over may hold any JSON."""
    return {"description": "Any JSON value."}


def _schema(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": REF.format(name=struct.__name__)}


def _operation(operation: Operation, needs_key: bool) -> dict[str, Any]:
    content = {
        media: {"schema": _schema(struct) if struct is not None else {"type": "string"}}
        for media, struct in operation.answers.items()
    }
    responses: dict[str, object] = {"200": {"description": "The answer.", "content": content}}
    errors = {*operation.errors, 403} if not operation.is_open else {*operation.errors}
    if needs_key and not operation.is_open:
        errors.add(401)
    for status in sorted(errors):
        responses[str(status)] = _problem(operation.error, status)
    if operation.path == "/health":
        responses["503"] = {"description": REASONS[503], "content": content}
    described: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": _schema(operation.body)}},
        }
    if operation.parameter:
        described["parameters"] = [
            {"name": operation.parameter, "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if needs_key and not operation.is_open:
        described["security"] = [{"key": []}]
    return described


def _problem(struct: type[msgspec.Struct], status: int) -> dict[str, object]:
    problem: dict[str, object] = {
        "description": REASONS[status], "content": {JSON: {"schema": _schema(struct)}}
    }  # fmt: skip
    if status == 429:
        problem["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return problem
