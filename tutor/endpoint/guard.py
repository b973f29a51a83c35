"""Who may call the server, and the id that each answer carries."""

from __future__ import annotations

import re
import secrets
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tutor.endpoint.errors import ApiError
from tutor.endpoint.http import error_answer
from tutor.endpoint.service import Service, service_of

OPEN = frozenset({"/health", "/metrics"})  # for probes and scrapers, which carry no key
REQUEST_ID = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")


class RequestIds:
    """Every answer has an X-Request-Id: the one that the client sent, else a new one.

    OpenAI's clients show it, and as in vLLM it is part of the answer's id.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = HTTPConnection(scope).headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        await self._app(scope, receive, with_id)


def request_id(connection: HTTPConnection) -> str:
    """The id that `RequestIds` chose."""
    return str(connection.state.request_id)


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
                await error_answer(scope["path"], error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _refusal(service: Service, connection: HTTPConnection) -> ApiError | None:
    headers = connection.headers
    if service.hosts:
        # Browsers always send a Host; probes that speak HTTP/1.0 need not.
        callers = [f"//{headers['host']}"] if "host" in headers else []
        callers += [headers["origin"]] if "origin" in headers else []
        if any(_name(caller) not in service.hosts for caller in callers):
            return ApiError(403, "This server answers to its own names only.", code="forbidden_host")
    if service.api_key and connection.scope["path"] not in OPEN:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        # The bytes as they were sent: starlette reads headers as Latin-1.
        right = secrets.compare_digest(key.strip().encode("latin-1"), service.api_key.encode())
        if scheme.lower() != "bearer" or not right:
            return ApiError(
                401, "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
                code="invalid_api_key", headers={"www-authenticate": "Bearer"},
            )  # fmt: skip
    return None


def _name(url: str) -> str | None:
    """The host that a URL names; None when there is none to be found."""
    try:
        return urlsplit(url).hostname
    except ValueError:  # such as brackets without an address
        return None
