"""OpenAI's requests and answers as structs: they decode, validate and describe themselves (see openapi.py).

Fields and defaults: https://platform.openai.com/docs/api-reference/chat and …/completions. Further sampling
fields (top_k, min_p, repetition_penalty, ignore_eos) have vLLM's names; `timings` is llama-server's.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tutor.endpoint.refused import RefusedFields

Limit = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Samples = Annotated[int, Meta(ge=1, le=128)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Repetition = Annotated[float, Meta(gt=0.0, le=100.0)]
StopText = Annotated[str, Meta(min_length=1, max_length=512)]
Stops = Annotated[list[StopText], Meta(max_length=16)]
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class StreamOptions(msgspec.Struct, frozen=True):
    """continuous_usage_stats (vLLM): usage in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """Only parts of type "text" can be read; `asks.py` refuses the others by name."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """The roles tool and function, and tool_calls, are known so that their refusal can say why."""

    role: Role
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[object] | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    type: str = "text"


class CommonFields(RefusedFields, frozen=True, kw_only=True):
    """What both ways of asking share. None is the default of the API, which `asks.py` fills in.

    max_tokens -1 is as many as fit (llama-server); seed -1 a new one each time (llama-server, vLLM).
    """

    model: str | None = None
    max_tokens: Limit | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    n: Samples | None = None
    seed: Seed | None = None
    stop: StopText | Stops | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Repetition | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None


class ChatRequest(CommonFields, frozen=True, kw_only=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Limit | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, object]] | None = None


class CompletionRequest(CommonFields, frozen=True, kw_only=True):
    """prompt: a text, several texts, the token ids of one prompt, or those of several."""

    prompt: str | Annotated[list[str | int | list[int]], Meta(min_length=1, max_length=128)]
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    best_of: Samples | None = None
    suffix: str | None = None


# --- answers ------------------------------------------------------------------------------------


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """completion_tokens counts every sampled token, the one that ends a text included."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Timings(msgspec.Struct, frozen=True, omit_defaults=True):
    """llama-server's figures of the first choice. Rates are 0 where no time passed.

    prompt_n are the prompt tokens that were computed, cache_n those that were not; predicted_ms is the time
    from the first token to the last, as there; draft_n is there when tokens were drafted.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class TopLogprob(msgspec.Struct, frozen=True):
    """`bytes` are the token's; `token` shows them as text, with U+FFFD for half a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob]


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """text_offset counts characters from the beginning of the answer."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class AnswerMessage(msgspec.Struct, frozen=True):
    role: Literal["assistant"]
    content: str
    refusal: str | None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatAnswer(msgspec.Struct, frozen=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings
    system_fingerprint: str


class CompletionChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionAnswer(msgspec.Struct, frozen=True):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    timings: Timings
    system_fingerprint: str


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class ChatChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`usage` is in the last chunk when it was asked for, `timings` in the last that has a choice."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    system_fingerprint: str
    usage: Usage | None = None
    timings: Timings | None = None


class CompletionChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    system_fingerprint: str
    usage: Usage | None = None
    timings: Timings | None = None


class ModelEntry(msgspec.Struct, frozen=True):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True):
    object: Literal["list"]
    data: list[ModelEntry]


class TokenizeRequest(msgspec.Struct, frozen=True):
    """`content` (llama-server) or `prompt` (vLLM) or `messages`; with_pieces adds each token's text."""

    content: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    parse_special: bool = False
    with_pieces: bool = False


class TokenPiece(msgspec.Struct, frozen=True):
    id: int
    piece: str
    bytes: list[int]


class TokenizeAnswer(msgspec.Struct, frozen=True):
    tokens: list[int]
    count: int
    max_model_len: int
    pieces: list[TokenPiece] | None


class DetokenizeRequest(msgspec.Struct, frozen=True):
    tokens: list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]


class DetokenizeAnswer(msgspec.Struct, frozen=True):
    """The same text twice: `content` is llama-server's name for it, `prompt` vLLM's."""

    content: str
    prompt: str


class Health(msgspec.Struct, frozen=True):
    """status: "ok" (200), or why requests are refused (503): starting, restarting, dead, closed."""

    status: str
    error: str = ""
