"""The ASGI application: routes, who may call them, and errors in the shape that the clients expect."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tutor.endpoint import ollama_api, openai_api, plain_api
from tutor.endpoint import ollama_schemas as o
from tutor.endpoint.errors import ApiError
from tutor.endpoint.http import ClientGone, error_answer, json_answer
from tutor.endpoint.service import Service, service_of

OPEN = frozenset({"/health", "/metrics"})  # for probes and scrapers, which carry no key
OLLAMA = "/api/"
CLIENT_GONE = 499  # nginx's number; nobody is left to read it


def make_app(service: Service) -> Starlette:
    """The application of one server. The caller starts and closes the engine.

    Handlers are coroutines, also where they wait for nothing: starlette runs others in threads of a pool.
    """
    app = Starlette(
        routes=[*openai_api.ROUTES, *ollama_api.ROUTES, *plain_api.ROUTES],
        middleware=[Middleware(Guard)],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientGone: _client_gone,
        },
    )
    app.state.service = service
    return app


def _answer(path: str, error: ApiError) -> Response:
    if path.startswith(OLLAMA):
        return json_answer(o.Problem(error.message), error.status, error.headers)
    return error_answer(error)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _answer(request.url.path, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    told = ApiError(error.status_code, f"{what}: {error.detail}.", code="unknown_url")
    response = _answer(request.url.path, told)
    response.headers.update(error.headers or {})
    return response


async def _client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


class Guard:
    """Lets in who has the key, and who calls this server by its own name.

    A web page that the user looks at can send requests to a server on loopback, under the page's Origin, or
    under a Host name that its owner lets point to 127.0.0.1 (DNS rebinding). Neither is this server's.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            connection = HTTPConnection(scope)
            error = _refusal(service_of(connection), connection)
            if error is not None:
                await _answer(connection.url.path, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _refusal(service: Service, connection: HTTPConnection) -> ApiError | None:
    headers, path = connection.headers, connection.url.path
    if service.hosts:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
        origin = headers.get("origin")
        callers = [host, urlsplit(origin).hostname] if origin is not None else [host]
        if any(caller not in service.hosts for caller in callers):
            return ApiError(403, "This server answers to its own names only.", code="forbidden_host")
    if service.api_key and path not in OPEN:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        right = secrets.compare_digest(key.strip().encode(), service.api_key.encode())
        if scheme.lower() != "bearer" or not right:
            return ApiError(
                401, "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
                code="invalid_api_key",
            )  # fmt: skip
    return None
