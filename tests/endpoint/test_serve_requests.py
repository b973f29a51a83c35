"""What clients of other servers send, as the engine is asked: understood, passed over or refused by name."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tutor.endpoint import messages as msg
from tutor.endpoint import ollama_schemas as o
from tutor.endpoint import schemas as s
from tutor.endpoint.asks import chat_ask, completion_ask
from tutor.endpoint.engine_client import Ask
from tutor.endpoint.errors import ApiError
from tutor.endpoint.http import read_body, read_json
from tutor.endpoint.ollama_api import ollama_ask
from tutor.endpoint.refused import RefusedFields

HI = [{"role": "user", "content": "Hi"}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}


def chat(**fields: Any) -> Ask:
    return chat_ask(msgspec.convert({"messages": HI, **fields}, s.ChatRequest))


def completion(**fields: Any) -> Ask:
    return completion_ask(msgspec.convert({"prompt": "Hi", **fields}, s.CompletionRequest))


def refusal(ask: Any, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        ask(**fields)
    assert caught.value.status == 400
    return caught.value


def test_null_is_the_default_of_every_optional_field() -> None:
    for kind, needed in ((s.ChatRequest, "messages"), (s.CompletionRequest, "prompt")):
        value = HI if needed == "messages" else "Hi"
        nulls = {name: None for name in kind.__struct_fields__ if name != needed}
        assert msgspec.convert({**nulls, needed: value}, kind) == msgspec.convert({needed: value}, kind)
    for kind in (o.Options, s.StreamOptions):
        assert msgspec.convert(dict.fromkeys(kind.__struct_fields__), kind) == kind()
    for kind in (o.GenerateRequest, o.OllamaChatRequest):
        nulls = {name: None for name in kind.__struct_fields__ if name != "model"}
        assert msgspec.convert({**nulls, "model": "m"}, kind) == kind(model="m")


def test_max_tokens() -> None:
    """-1 is llama-server's word for no limit; the newer name wins, as in vLLM."""
    assert chat(max_tokens=-1).max_tokens is None and completion(max_tokens=-1).max_tokens is None
    assert chat(max_tokens=9, max_completion_tokens=3).max_tokens == 3
    assert completion().max_tokens == 16 and chat().max_tokens is None
    for error in (refusal(chat, max_tokens=0), refusal(chat, max_completion_tokens=0, max_tokens=5)):
        assert error.body.param == "max_tokens" and error.body.code == "invalid_value"


def test_seed_minus_one_is_no_seed() -> None:
    assert len({chat(seed=-1).sampling.seed for _ in range(4)}) == 4
    assert chat(seed=-2).sampling.seed == 2**64 - 2 and chat(seed=7).sampling.seed == 7
    seeds = {ollama_ask(msg.TextPrompt("x"), o.Options(seed=-1)).sampling.seed for _ in range(4)}
    assert len(seeds) == 4


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "messages[0].role"),
        ([*HI, {"role": "function", "name": "f", "content": "x"}], "messages[1].role"),
        ([{"role": "assistant", "content": None, "tool_calls": [CALL]}], "messages[0].tool_calls"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]}],
            "messages[0].content[1].type",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ],
)
def test_messages_that_the_model_cannot_read(messages: list[dict[str, Any]], param: str) -> None:
    assert refusal(chat, messages=messages).body.param == param


def test_text_parts_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (prompt,) = chat(
        messages=[{"role": "developer", "content": parts}, {"role": "user", "content": None}]
    ).prompts
    assert prompt == msg.ChatPrompt([("system", "ab"), ("user", "")])


@pytest.mark.parametrize("name", [*RefusedFields.__struct_fields__, "logit_bias"])
def test_what_would_change_the_answer_is_refused_by_name(name: str) -> None:
    asking = False if name in ("skip_special_tokens", "add_generation_prompt") else {"7": 1}
    for ask in (chat, completion) if name != "echo" else (chat,):
        error = refusal(ask, **{name: asking})
        assert error.body.param == name and name in error.message
        assert error.body.code == "unsupported_parameter"


def test_what_switches_it_off_is_not() -> None:
    off: dict[str, Any] = dict.fromkeys(RefusedFields.__struct_fields__, False)
    off |= {"tool_choice": "auto", "function_call": "none", "modalities": ["text"], "typical_p": 1.0}
    off |= {"skip_special_tokens": True, "add_generation_prompt": True, "stop_token_ids": [], "grammar": ""}
    off |= {"logit_bias": {}, "tools": [], "response_format": {"type": "text"}}
    assert chat(**off, seed=1).sampling == chat(seed=1).sampling
    off = {name: value for name, value in off.items() if name not in ("tools", "response_format")}
    assert completion(**off, seed=1).sampling == completion(seed=1).sampling


def test_fields_that_nobody_knows_are_passed_over() -> None:
    more = {"store": True, "metadata": {"a": "b"}, "parallel_tool_calls": False, "reasoning_effort": "low"}
    assert chat(**more, service_tier="auto", seed=1) == chat(seed=1)


def test_ollama_options() -> None:
    """Its own defaults, and null for them; a top_k of 0 or less is off."""
    sampling = ollama_ask(msg.TextPrompt("x"), o.Options(seed=1)).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.8, 40, 0.9)
    assert (sampling.repetition_penalty, sampling.penalty_last_n, sampling.min_p) == (1.1, 64, 0.0)
    assert ollama_ask(msg.TextPrompt("x"), o.Options(top_k=-1)).sampling.top_k == 0
    assert ollama_ask(msg.TextPrompt("x"), o.Options(num_predict=0)).max_tokens is None
    with pytest.raises(ApiError, match="mirostat"):
        ollama_ask(msg.TextPrompt("x"), o.Options(mirostat=2))
    assert ollama_ask(msg.TextPrompt("x"), o.Options(mirostat=0, typical_p=1.0, seed=1)).sampling == sampling


class Body:
    """As much of a request as reading a body needs."""

    def __init__(self, *parts: bytes, ends: bool = True, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._parts, self._ends = parts, ends

    async def stream(self) -> Any:
        for part in self._parts:
            yield part
        if not self._ends:
            await asyncio.Event().wait()


async def test_a_body_that_never_ends_is_given_up() -> None:
    with pytest.raises(ApiError) as caught:
        await read_body(Body(b"{", ends=False), seconds=0.01)  # type: ignore[arg-type]
    assert caught.value.status == 408 and caught.value.headers["connection"] == "close"


async def test_a_compressed_body_is_refused() -> None:
    for coding, works in (("gzip", False), ("zstd", False), ("identity", True)):
        request = Body(b"{}", content_encoding=coding)
        if works:
            assert await read_body(request) == b"{}"  # type: ignore[arg-type]
            continue
        with pytest.raises(ApiError, match=coding) as caught:
            await read_body(request)  # type: ignore[arg-type]
        assert caught.value.status == 415


async def test_the_message_names_the_field() -> None:
    """Clients show the message; few show `param`."""
    body = Body(b'{"prompt": "x", "temperature": 9}')
    with pytest.raises(ApiError, match="temperature: expected") as caught:
        await read_json(body, s.CompletionRequest)  # type: ignore[arg-type]
    assert caught.value.body.param == "temperature"
