"""From an OpenAI request to what the engine is asked: defaults filled in, what cannot be done refused."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tutor.endpoint import messages as msg
from tutor.endpoint.engine_client import Ask
from tutor.endpoint.errors import bad_request
from tutor.endpoint.refused import RefusedFields, refuse, unsupported
from tutor.endpoint.schemas import ChatMessage, ChatRequest, CommonFields, CompletionRequest, ContentPart
from tutor.serving.sampling import MAX_SEED, SamplingParams

COMPLETION_TOKENS = 16  # OpenAI's default of max_tokens for /v1/completions
TEMPERATURE = 1.0  # OpenAI's default


def chat_prompt(messages: Sequence[ChatMessage]) -> msg.ChatPrompt:
    """Developer messages are system messages under a newer name. Raises ApiError (400)."""
    pairs: list[tuple[str, str]] = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if message.role in ("tool", "function"):
            raise unsupported(f"A {message.role} message", f"{where}.role")
        if message.tool_calls:
            raise unsupported("A message with tool_calls", f"{where}.tool_calls")
        role = "system" if message.role == "developer" else message.role
        pairs.append((role, _text(message.content, where)))
    return msg.ChatPrompt(pairs)


def _text(content: str | list[ContentPart] | None, where: str) -> str:
    """The text of a message; that of several parts is joined. Raises ApiError (400)."""
    if not isinstance(content, list):
        return content or ""
    for place, part in enumerate(content):
        if part.type != "text":
            raise unsupported(f"A content part of type {part.type}", f"{where}.content[{place}].type")
        if part.text is None:
            raise bad_request("A text part needs a text.", f"{where}.content[{place}].text", "invalid_value")
    return "".join(part.text or "" for part in content)


def chat_ask(request: ChatRequest) -> Ask:
    """Without max_tokens an answer may fill the context. Raises ApiError (400)."""
    if request.tools:
        raise unsupported("tools", "tools")
    if request.response_format is not None and request.response_format.type != "text":
        raise unsupported(f"A response_format of {request.response_format.type}", "response_format")
    if request.top_logprobs and not request.logprobs:
        raise bad_request("top_logprobs needs logprobs: true.", "top_logprobs")
    # One logprob at least has to be computed for the token itself to have one.
    logprobs = max(1, request.top_logprobs or 0) if request.logprobs else 0
    asked = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    limit = _limit(asked, None)
    return Ask([chat_prompt(request.messages)], _sampling(request, logprobs, limit), limit, request.n or 1)


def completion_ask(request: CompletionRequest) -> Ask:
    """Raises ApiError (400)."""
    if request.suffix:
        raise unsupported("suffix", "suffix")
    n = request.n or 1
    if request.best_of is not None and request.best_of != n:
        raise unsupported("best_of other than n", "best_of")
    logprobs = 0 if request.logprobs is None else max(1, request.logprobs)
    limit = _limit(request.max_tokens, COMPLETION_TOKENS)
    return Ask(completion_prompts(request.prompt), _sampling(request, logprobs, limit), limit, n)


def _limit(asked: int | None, default: int | None) -> int | None:
    """The most tokens of an answer, None for as many as fit. Raises ApiError (400) for 0."""
    if asked == 0:
        raise bad_request(
            "max_tokens is 0. It has to be 1 or more; -1 is as many as fit.", "max_tokens", "invalid_value"
        )
    if asked == -1:
        return None
    return default if asked is None else asked


def completion_prompts(prompt: str | list[str | int | list[int]]) -> list[msg.Prompt]:
    """One prompt or several. Raises ApiError (400) for a list that mixes kinds."""
    if isinstance(prompt, str):
        return [msg.TextPrompt(prompt)]
    texts = [part for part in prompt if isinstance(part, str)]
    ids = [part for part in prompt if isinstance(part, int)]
    lists = [part for part in prompt if isinstance(part, list)]
    if len(ids) == len(prompt):
        return [msg.TokenPrompt(_known_ids(ids))]
    if len(texts) == len(prompt):
        return [msg.TextPrompt(text) for text in texts]
    if len(lists) == len(prompt) and all(lists):
        return [msg.TokenPrompt(_known_ids(part)) for part in lists]
    raise bad_request("prompt is a text, a list of texts, token ids, or a list of lists of them.", "prompt")


def _known_ids(ids: list[int]) -> list[int]:
    if any(not 0 <= token < 2**31 for token in ids):
        raise bad_request("A token id is out of range.", "prompt", "invalid_value")
    return ids


def _sampling(request: CommonFields, logprobs: int, limit: int | None) -> SamplingParams:
    if request.logit_bias:
        raise unsupported("logit_bias", "logit_bias")
    refuse(request, RefusedFields)
    top_p = 1.0 if request.top_p is None else request.top_p
    top_k = max(0, request.top_k or 0)  # vLLM's -1 is off as well
    return SamplingParams(
        temperature=TEMPERATURE if request.temperature is None else request.temperature,
        # top_p 0 keeps the token that reaches 0 first: the most likely one.
        top_k=1 if top_p == 0.0 else top_k,
        top_p=top_p or 1.0,
        min_p=request.min_p or 0.0,
        seed=seed(request.seed),
        repetition_penalty=request.repetition_penalty or 1.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logprobs=logprobs,
        stop=_stops(request.stop),
        ignore_eos=_ignores_end(request, limit),
    )


def seed(given: int | None) -> int:
    """The seed that was asked for, else a new one each time. Negative ones wrap round.

    -1 is no seed, as in llama-server, vLLM and Ollama.
    """
    return random.getrandbits(64) if given in (None, -1) else given % (MAX_SEED + 1)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(dict.fromkeys(stop))


def _ignores_end(request: CommonFields, limit: int | None) -> bool:
    """min_tokens (vLLM) can be had where it equals max_tokens: then the end token is ignored."""
    if not request.min_tokens or request.ignore_eos:
        return bool(request.ignore_eos)
    if request.min_tokens != limit:
        raise unsupported("min_tokens other than max_tokens", "min_tokens")
    return True
