"""Addresses, connections and errors that the load generator and the observer share.

Errors: ClientError (a sentence for the user) is the base; AddressError says that the text is no address,
Unreachable that nothing answered, Refused that the server answered with an error (`status`).
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import time
from urllib.parse import urlsplit

import httpx2
import msgspec

# llama-server closes a connection that was idle for 5 s; one that we closed before cannot break a request.
KEEPALIVE_SECONDS = 4.0
LONGEST_MESSAGE = 300
# A kept connection that the server gave up breaks at once; one that breaks later broke for another reason.
STALE_SECONDS = 0.25
# What people paste instead of a server's root.
API_PATHS = ("/chat/completions", "/completions", "/models", "/v1")
_HOST = re.compile(r"[\w.:%-]+$")
_HTML = re.compile(r"\s*(<!doctype html|<html)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_MARKUP = re.compile(r"<(style|script).*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)


class ClientError(Exception):
    """The server could not be used. The text is a sentence for the user."""


class AddressError(ClientError):
    """The text is not the address of a server."""


class Unreachable(ClientError):
    """Nothing answered, or the connection broke."""


class Refused(ClientError):
    """The server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"The server answered {status}: {message}")
        self.status = status


class _ErrorBody(msgspec.Struct):
    message: str = ""


class _ErrorAnswer(msgspec.Struct):
    """OpenAI has an object in `error`; Ollama and others put a sentence there, FastAPI one in `detail`."""

    error: _ErrorBody | str = ""
    message: str = ""
    detail: object = None


def base_url(text: str) -> str:
    """The server's root: scheme and port of `text`, without `/v1`, a route below it or a slash at its end.

    AddressError when it is not an http or https address.
    """
    address = text.strip()
    if address.startswith(("http:", "https:")) and "://" not in address:  # a slash was left out
        raise AddressError(f"{text!r} is not an address like http://127.0.0.1:8000.")
    if "://" not in address:
        address = f"http://{address}"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"{text!r} is not an address: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise AddressError(f"{text!r} is not an address like http://127.0.0.1:8000.")
    if "@" in parts.netloc:
        raise AddressError("An address has no user or password here. A key goes into --api-key.")
    if parts.hostname.isdigit():
        raise AddressError(f"{text!r} is not an address: a port goes behind a host, as in 127.0.0.1:8000.")
    if not _HOST.match(parts.hostname) or ".." in parts.hostname:
        raise AddressError(f"{text!r} is not an address: {parts.hostname!r} is not a host.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    root = f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")
    path = parts.path.rstrip("/")
    for known in API_PATHS:
        path = path.removesuffix(known)
    return root + path.rstrip("/")


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_client(url: str, api_key: str | None, timeout: float) -> httpx2.AsyncClient:
    """A client without a limit on connections. `timeout`: seconds without a byte until a request fails.

    A server on this machine is never reached through a proxy, whatever the environment says. SSL_CERT_FILE
    counts for it all the same: OpenSSL reads that itself.
    """
    headers = {"Accept-Encoding": "identity", "User-Agent": "inference-tutor"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return httpx2.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
        limits=httpx2.Limits(
            max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_SECONDS
        ),
        trust_env=not is_loopback(url),
        verify=ssl.create_default_context() if os.environ.get("SSL_CERT_FILE") else True,
        follow_redirects=True,
    )


async def send(
    client: httpx2.AsyncClient, request: httpx2.Request, *, stream: bool = False
) -> tuple[httpx2.Response, bool]:
    """The answer, and whether the request was sent a second time.

    llama-server closes kept connections now and then just as the next request arrives. No byte of an answer
    came and nothing was computed then, so the request goes out again on a new connection, as Go's net/http
    does it. A second failure is raised.
    """
    began = time.perf_counter()
    try:
        return await client.send(request, stream=stream), False
    except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
        if time.perf_counter() - began > STALE_SECONDS:
            raise
    return await client.send(request, stream=stream), True


async def fetch(client: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """GET `path`."""
    response, _ = await send(client, client.build_request("GET", path))
    return response


def why(error: httpx2.HTTPError) -> str:
    """What went wrong on the way, in a few words."""
    if isinstance(error, httpx2.ConnectError) and (words_of_it := _no_connection(str(error))):
        return words_of_it
    words: dict[type[httpx2.HTTPError], str] = {
        httpx2.ConnectError: "nothing answers at this address",
        httpx2.ConnectTimeout: "no connection within the time limit",
        httpx2.ReadTimeout: "no byte came within the time limit",
        httpx2.RemoteProtocolError: "the server closed the connection in the middle",
        httpx2.ReadError: "the connection broke",
    }
    return words.get(type(error)) or str(error) or type(error).__name__


def _no_connection(reason: str) -> str:
    """Why there is no connection although the address may be right; empty when nothing listens there."""
    if "WRONG_VERSION_NUMBER" in reason or "record layer failure" in reason:
        return "it does not speak https; try http"
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "its certificate is not trusted"
    if "[Errno -" in reason or "getaddrinfo" in reason or "nodename" in reason:
        return "no host has this name"
    return ""


def message_of(body: bytes) -> str:
    """The sentence in an error answer, of whatever shape."""
    try:
        answer = msgspec.json.decode(body, type=_ErrorAnswer)
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace").strip()
    else:
        inner = answer.error if isinstance(answer.error, str) else answer.error.message
        detail = answer.detail if isinstance(answer.detail, str) else ""
        text = inner or answer.message or detail or body.decode("utf-8", "replace").strip()
    if _HTML.match(text):
        title = _TITLE.search(text)
        text = f"an HTML page, {title[1]}" if title else f"an HTML page: {_MARKUP.sub(' ', text)}"
    text = " ".join(text.split())
    return text[:LONGEST_MESSAGE] or "no reason given"
