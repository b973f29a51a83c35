"""Ollama's requests and answers as structs.

Fields: https://github.com/ollama/ollama/blob/main/api/types.go. Durations are nanoseconds; fields that are 0
are left out, as there.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Number = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Repetition = Annotated[float, Meta(gt=0.0, le=100.0)]
Temperature = Annotated[float, Meta(ge=0.0, le=100.0)]
StopText = Annotated[str, Meta(min_length=1, max_length=512)]
Stops = Annotated[list[StopText], Meta(max_length=16)]


class RefusedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Samplers that this server does not have."""

    mirostat: object = None
    typical_p: object = None


class Options(RefusedOptions, frozen=True, kw_only=True):
    """null is Ollama's default (see `ollama_ask`). num_predict: -1 is as many as fit. seed: -1 is none."""

    temperature: Temperature | None = None
    top_k: Number | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    num_predict: Number | None = None
    repeat_penalty: Repetition | None = None
    repeat_last_n: Number | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: StopText | Stops | None = None


class OllamaMessage(msgspec.Struct, frozen=True):
    """The role tool, images and tool_calls are known so that their refusal can say why."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = ""
    images: list[object] | None = None
    tool_calls: list[object] | None = None


class OllamaAnswerMessage(msgspec.Struct, frozen=True):
    role: Literal["assistant"]
    content: str


class Generating(msgspec.Struct, frozen=True, kw_only=True):
    """What both ways of asking share. Those from `format` on are refused when they ask for something."""

    model: str
    stream: bool | None = None
    options: Options | None = None
    keep_alive: int | float | str | None = None
    format: str | dict[str, object] | None = None
    think: bool | str | None = None
    logprobs: bool | None = None


class GenerateRequest(Generating, frozen=True, kw_only=True):
    """raw: no chat template. An empty prompt loads the model, with keep_alive 0 it unloads it."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    images: list[str] | None = None
    template: str | None = None
    context: list[int] | None = None


class OllamaChatRequest(Generating, frozen=True, kw_only=True):
    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, object]] | None = None


class ShowRequest(msgspec.Struct, frozen=True):
    """`name` is the older word for `model`."""

    model: str = ""
    name: str = ""


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
    message: OllamaAnswerMessage
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


class Process(msgspec.Struct, frozen=True):
    """A loaded model. context_length: tokens of prompt and answer together."""

    name: str
    model: str
    size: int
    size_vram: int
    digest: str
    details: Details
    expires_at: str
    context_length: int


class Processes(msgspec.Struct, frozen=True):
    models: list[Process]


class ShowAnswer(msgspec.Struct, frozen=True):
    """template is the chat template in the model's file, in Jinja's language (Ollama's own are in Go's)."""

    template: str
    details: Details
    model_info: dict[str, str | int]
    capabilities: list[str]
    modified_at: str


class Version(msgspec.Struct, frozen=True):
    version: str


class Problem(msgspec.Struct, frozen=True):
    """Ollama's error object."""

    error: str
