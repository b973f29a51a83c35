"""What an answer can say when it is not the one that was asked for: OpenAI's error object, and Ollama's.

The shape and the codes are those of https://platform.openai.com/docs/guides/error-codes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ErrorBody(msgspec.Struct, frozen=True):
    """`param` names the field at fault; `code` is for programs, `message` for people."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: ErrorBody


class ApiError(Exception):
    """An HTTP status with a sentence and headers. `retry_after`: seconds, one of these headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.body = ErrorBody(message, kind, param, code)
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = str(retry_after)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unknown_model(name: str, known: str) -> ApiError:
    return ApiError(
        404, f"The model `{name}` does not exist; this server has `{known}`.", param="model",
        code="model_not_found",
    )  # fmt: skip


def overloaded(num_waiting: int, retry_after: int) -> ApiError:
    return ApiError(
        429, f"The waiting queue is full ({num_waiting} requests wait). Try again in {retry_after} s.",
        kind="rate_limit_error", code="rate_limit_exceeded", retry_after=retry_after,
    )  # fmt: skip


def unavailable(message: str, retry_after: int | None = 1) -> ApiError:
    return ApiError(503, message, kind="server_error", code="engine_unavailable", retry_after=retry_after)
