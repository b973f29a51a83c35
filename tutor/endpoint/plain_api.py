"""Routes that belong to no vendor alone: /health, /metrics, /tokenize, /detokenize, /openapi.json."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tutor.endpoint import messages as msg
from tutor.endpoint import schemas as s
from tutor.endpoint.asks import chat_prompt
from tutor.endpoint.errors import bad_request
from tutor.endpoint.http import json_answer, read_json
from tutor.endpoint.openapi import describe
from tutor.endpoint.service import service_of


async def health(request: Request) -> Response:
    """200 while requests are taken (an unloaded engine starts with the next one), 503 otherwise."""
    engine = service_of(request).engine
    if engine.state in ("ready", "unloaded"):
        return json_answer(s.Health("ok"))
    return json_answer(s.Health(engine.state, engine.error), 503)


async def metrics(request: Request) -> Response:
    observer = service_of(request).observer
    observer.scraped()
    data = generate_latest(observer.registry)
    return Response(data, headers={"content-type": CONTENT_TYPE_LATEST})


async def tokenize(request: Request) -> Response:
    body = await read_json(request, s.TokenizeRequest)
    given = [part for part in (body.content, body.prompt, body.messages) if part is not None]
    if len(given) != 1:
        raise bad_request("Send one of content, prompt and messages.", "content")
    prompt: msg.Prompt
    if body.messages is not None:
        prompt = chat_prompt(body.messages)
    else:
        prompt = msg.TextPrompt(body.content or body.prompt or "", body.parse_special)
    service = service_of(request)
    told = await service.engine.tokenize(prompt)
    pieces = None
    if body.with_pieces:
        pieces = [
            s.TokenPiece(token, piece.decode("utf-8", "replace"), list(piece))
            for token, piece in zip(told.token_ids, told.pieces, strict=True)
        ]
    count = len(told.token_ids)
    return json_answer(s.TokenizeAnswer(told.token_ids, count, service.card.max_model_len, pieces))


async def detokenize(request: Request) -> Response:
    body = await read_json(request, s.DetokenizeRequest)
    told = await service_of(request).engine.detokenize(body.tokens)
    text = b"".join(told.pieces).decode("utf-8", "replace")
    return json_answer(s.DetokenizeAnswer(text, text))


async def openapi(request: Request) -> Response:
    service = service_of(request)
    return Response(describe(service.version, bool(service.api_key)), media_type="application/json")


ROUTES = [
    Route("/health", health, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/openapi.json", openapi, methods=["GET"]),
]
