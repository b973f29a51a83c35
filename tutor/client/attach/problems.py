"""What went wrong between us and a server: one sentence that says it, and one that says what to type next."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import httpx2

from tutor.client.http import why

USUAL_PORTS = "vLLM listens on 8000, SGLang on 30000, llama-server and tutor serve on 8080."
KNOWN = "vLLM, SGLang, llama-server and tutor serve"

# What to do about an engine whose metrics are not there.
ENABLE = {
    "vllm": "Start vLLM without --disable-log-stats.",
    "llama-server": "Start llama-server with --metrics.",
    "sglang": "Start SGLang with --enable-metrics.",
    "ollama": f"Ollama has none. tutor attach knows {KNOWN}.",
    "page": f"Give the address and port of the engine itself: {USUAL_PORTS}",
    "unknown": "vLLM has /metrics always; SGLang needs --enable-metrics, llama-server --metrics.",
}


def unreachable(error: httpx2.HTTPError, url: str) -> str:
    """Why nothing came from `url`, and what to do about it."""
    said = _cause(error)
    parts = urlsplit(url)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return (
            "The server's certificate is not one that this machine trusts. Set SSL_CERT_FILE to the file of "
            "its CA, or reach it by http over an SSH tunnel (ssh -L)."
        )
    if parts.scheme == "https" and ("WRONG_VERSION_NUMBER" in said or "RECORD_LAYER" in said):
        return f"This server does not speak https. Try http://{parts.netloc}."
    if "Name or service not known" in said or "getaddrinfo" in said or "nodename nor servname" in said:
        return f"No machine is known by the name {parts.hostname}."
    if isinstance(error, httpx2.ConnectError):
        port = "" if parts.port else f" No port was given: {USUAL_PORTS}"
        return f"Nothing answers at this address.{port}"
    sentence = f"{why(error).capitalize()}."
    if isinstance(error, (httpx2.RemoteProtocolError, httpx2.ReadError)) and parts.scheme == "http":
        return f"{sentence} If it speaks https, try https://{parts.netloc}."
    return sentence


def _cause(error: BaseException) -> str:
    """The texts of an error and of all that led to it: httpx2 keeps the system's own words below its own."""
    texts: list[str] = []
    at: BaseException | None = error
    while at is not None:
        reason = at.reason if isinstance(at, ssl.SSLError) else ""
        texts.append(f"{at} {reason}")
        if isinstance(at, BaseExceptionGroup):
            texts += [_cause(inner) for inner in at.exceptions]
        at = at.__cause__ or at.__context__
    return " ".join(texts)


def refused(status: int, said: str, api_key: bool) -> str | None:
    """What an error status means when it is no word about metrics; None for the others."""
    if status in (401, 403):
        want = "it does not take this key" if api_key else "it wants a key (--api-key)"
        return f"The server answered {status}: {want}."
    if status == 400 and "model" in said:
        return f"The server answered 400: {said}. A llama-server that routes to several models needs --model."
    if status >= 500 and status != 501:
        return f"The server answered {status}: {said}"
    return None


def no_metrics(kind: str, name: str, status: int) -> str:
    what = "no metrics that the tutor knows" if status == 200 else f"no /metrics ({status})"
    return f"This is {name} with {what}. {ENABLE[kind]}"
