"""Ollama's requests and answers as structs.

Fields: https://github.com/ollama/ollama/blob/main/api/types.go. Durations are nanoseconds; fields that are 0
are left out, as there.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Number = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
NonNegative = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Repetition = Annotated[float, Meta(gt=0.0, le=100.0)]
Temperature = Annotated[float, Meta(ge=0.0, le=100.0)]
StopText = Annotated[str, Meta(min_length=1, max_length=512)]
Stops = Annotated[list[StopText], Meta(max_length=16)]


class Options(msgspec.Struct, frozen=True):
    """The defaults are Ollama's. num_predict: -1 is as many as fit."""

    temperature: Temperature = 0.8
    top_k: NonNegative = 40
    top_p: Share = 0.9
    min_p: Share = 0.0
    seed: Seed | None = None
    num_predict: Number = -1
    repeat_penalty: Repetition = 1.1
    repeat_last_n: Number = 64
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    stop: StopText | Stops | None = None


class OllamaMessage(msgspec.Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class GenerateRequest(msgspec.Struct, frozen=True):
    """raw: no chat template. An empty prompt loads the model, with keep_alive 0 it unloads it."""

    model: str
    prompt: str = ""
    system: str = ""
    raw: bool = False
    stream: bool = True
    options: Options = Options()
    keep_alive: int | float | str | None = None
    suffix: str = ""
    images: list[str] | None = None
    format: str | dict[str, object] | None = None


class OllamaChatRequest(msgspec.Struct, frozen=True):
    model: str
    messages: list[OllamaMessage] = []
    stream: bool = True
    options: Options = Options()
    keep_alive: int | float | str | None = None
    tools: list[dict[str, object]] | None = None
    format: str | dict[str, object] | None = None


class Durations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """total_duration is from the request's arrival to its last token; load_duration what it waited for the
    model to load; prompt_eval_duration from admission to the first token; eval_duration from there to the
    last. prompt_eval_count are the prompt's tokens, whether computed or cached."""

    done_reason: str = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_cached_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0


class GenerateAnswer(Durations, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    created_at: str
    response: str
    done: bool


class OllamaChatAnswer(Durations, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    created_at: str
    message: OllamaMessage
    done: bool


class Details(msgspec.Struct, frozen=True):
    format: str
    family: str
    parameter_size: str
    quantization_level: str


class Tag(msgspec.Struct, frozen=True):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class Tags(msgspec.Struct, frozen=True):
    models: list[Tag]


class Version(msgspec.Struct, frozen=True):
    version: str


class Problem(msgspec.Struct, frozen=True):
    """Ollama's error object."""

    error: str
