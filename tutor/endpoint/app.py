"""The ASGI application: routes, who may call them, and errors in the shape that the clients expect."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tutor.endpoint import ollama_api, ollama_models, openai_api, plain_api
from tutor.endpoint.errors import ApiError
from tutor.endpoint.guard import Guard, RequestIds
from tutor.endpoint.http import ClientGone, error_answer
from tutor.endpoint.service import Service

CLIENT_GONE = 499  # nginx's number; nobody is left to read it
LOCAL_PAGES = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
SHOWN_HEADERS = ("x-request-id", "retry-after")  # what a page's script may read
ROUTES: list[BaseRoute] = [
    *openai_api.ROUTES, *ollama_api.ROUTES, *ollama_models.ROUTES, *plain_api.ROUTES
]  # fmt: skip
PATHS = [route.path for route in ROUTES if isinstance(route, Route)]


def make_app(service: Service) -> Starlette:
    """The application of one server. The caller starts and closes the engine.

    Handlers are coroutines, also where they wait for nothing: starlette runs others in threads of a pool.
    """
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(RequestIds), _pages(service), Middleware(Guard)],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientGone: _client_gone,
        },
    )
    app.state.service = service
    return app


def _pages(service: Service) -> Middleware:
    """Which web pages may read answers: those of this machine, or, where a key is asked for, any.

    A browser asks before it sends JSON (OPTIONS, without the key), so this stands before the guard.
    """
    return Middleware(
        CORSMiddleware,
        allow_origins=[] if service.hosts else ["*"],
        allow_origin_regex=LOCAL_PAGES if service.hosts else None,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=SHOWN_HEADERS,
    )


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_answer(request.scope["path"], error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    code = "method_not_supported" if error.status_code == 405 else "unknown_url"
    sentence = f"{request.method} {path}: {error.detail}.{_hint(path) if code == 'unknown_url' else ''}"
    return error_answer(path, ApiError(error.status_code, sentence, code=code, headers=error.headers))


def _hint(path: str) -> str:
    """What was meant, where that is plain: a base URL without /v1, or with too much of it."""
    tail = path.rstrip("/").rpartition("/v1/")[2].lstrip("/")
    meant = [
        known for known in PATHS if tail and known.removeprefix("/v1").removeprefix("/api") == f"/{tail}"
    ]
    if meant:
        return f" Did you mean {' or '.join(meant)}?"
    if tail == "responses":
        return " This server has no Responses API; use /v1/chat/completions."
    return ""


async def _client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)
