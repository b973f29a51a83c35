"""The official openai package against the server: what it sends is understood, what it gets it can read."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import openai
import pytest
from endpoint_kit import Running, Start, wait_for
from openai import OpenAI

MODEL = "SmolLM2-135M-Instruct.Q4_1"
HI = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def server(start: Start) -> Running:
    return start(traced=True)


@pytest.fixture
def client(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL


def test_no_model_is_the_only_model_and_an_id_is_kept(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="", messages=HI, max_tokens=1)
    assert answer.model == MODEL
    assert answer._request_id is not None and answer.id == f"chatcmpl-{answer._request_id}"
    mine = client.completions.create(
        model=MODEL, prompt="a", max_tokens=1, extra_headers={"X-Request-Id": "mine"}
    )
    assert mine.id == "cmpl-mine" and mine._request_id == "mine"


def test_a_stream_says_that_it_is_utf_8(server: Running) -> None:
    with server.client() as http:
        answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_models_with_a_slash_at_the_end(server: Running) -> None:
    with server.client() as http:
        assert http.get("/v1/models/").json() == http.get("/v1/models").json()


def test_a_chat_and_its_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HI, temperature=0, max_tokens=24)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    again = client.chat.completions.create(model=MODEL, messages=HI, temperature=0, max_tokens=24)
    assert again.choices[0].message.content == answer.choices[0].message.content
    assert again.usage is not None and again.usage.prompt_tokens_details is not None
    # Full blocks of 16 were cached; the last token is always computed.
    assert again.usage.prompt_tokens_details.cached_tokens == (again.usage.prompt_tokens - 1) // 16 * 16
    assert again.model_extra is not None
    assert again.model_extra["timings"]["cache_n"] == again.usage.prompt_tokens_details.cached_tokens


def test_a_stream_is_the_same_text_with_usage_at_its_end(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=HI, temperature=0, max_tokens=16)
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=HI, temperature=0, max_tokens=16, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason and not any(reasons[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in chunks[:-1])
    # As llama-server does: timings in the last chunk, with the usage when there is one.
    assert ["timings" in (c.model_extra or {}) for c in chunks] == [False] * (len(chunks) - 1) + [True]
    plain = list(
        client.chat.completions.create(model=MODEL, messages=HI, temperature=0, max_tokens=16, stream=True)
    )
    assert plain[-1].choices[0].finish_reason and "timings" in (plain[-1].model_extra or {})


def test_completions_of_several_prompts_and_samples(client: OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=["1, 2, 3,", "The capital of France is"], n=2, max_tokens=6, seed=7, temperature=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    again = client.completions.create(
        model=MODEL, prompt=["1, 2, 3,", "The capital of France is"], n=2, max_tokens=6, seed=7, temperature=1
    )
    assert [c.text for c in again.choices] == [c.text for c in answer.choices]
    assert answer.choices[2].text != answer.choices[3].text  # another seed each
    assert answer.usage is not None and answer.usage.completion_tokens == 24


def test_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=HI, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3
    )
    told = answer.choices[0].logprobs
    assert told is not None and told.content is not None
    for entry in told.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy takes the likeliest
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
    text = b"".join(bytes(entry.bytes or []) for entry in told.content).decode()
    assert text == answer.choices[0].message.content
    pieces = [
        entry.token
        for chunk in client.chat.completions.create(
            model=MODEL, messages=HI, temperature=0, max_tokens=5, logprobs=True, stream=True
        )
        if chunk.choices and chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert pieces == [entry.token for entry in told.content]


def test_a_stop_string_ends_the_text_before_it(client: OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="1, 2, 3, 4, 5,", temperature=0, max_tokens=40, stop=" 9"
    )
    assert answer.choices[0].finish_reason == "stop"
    assert "9" not in answer.choices[0].text and "8" in answer.choices[0].text


def test_a_penalty_changes_the_text(client: OpenAI) -> None:
    plain, penalised = (
        client.completions.create(
            model=MODEL, prompt="a a a a a a a a", temperature=0, max_tokens=12, frequency_penalty=penalty
        )
        for penalty in (0.0, 2.0)
    )
    assert plain.choices[0].text != penalised.choices[0].text


@pytest.mark.parametrize(
    ("error", "wrong", "code"),
    [
        (openai.NotFoundError, {"model": "gpt-4"}, "model_not_found"),
        (openai.BadRequestError, {"max_tokens": 100_000}, "context_length_exceeded"),
        (openai.BadRequestError, {"temperature": 3}, "invalid_value"),
        (openai.BadRequestError, {"messages": []}, "invalid_value"),
        (openai.BadRequestError, {"tools": [{"type": "function"}]}, "unsupported_parameter"),
        (openai.BadRequestError, {"n": 100}, None),
    ],
)
def test_errors_have_the_shape_that_the_client_knows(
    client: OpenAI, error: type[openai.APIStatusError], wrong: dict[str, object], code: str | None
) -> None:
    asked = {"model": MODEL, "messages": HI, "max_tokens": 4, **wrong}
    with pytest.raises(error) as caught:
        client.chat.completions.create(**asked)  # type: ignore[call-overload]
    assert caught.value.code == code
    assert caught.value.body["message"]  # type: ignore[index]


def test_leaving_a_stream_frees_its_blocks_within_a_step(server: Running, client: OpenAI) -> None:
    before = server.metric("tutor:abort_steps_count")
    stream = client.completions.create(
        model=MODEL, prompt="1, 2, 3,", max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    assert server.server.observer.latest.num_used_blocks > 0
    stream.close()
    wait_for(lambda: server.metric("tutor:abort_steps_count") == before + 1)
    assert server.is_empty()
    # All aborts so far took one step at most: what ran when the command came had to end first.
    assert server.metric("tutor:abort_steps_bucket", le="1.0") == server.metric("tutor:abort_steps_count")


def test_leaving_a_whole_answer_frees_its_blocks_too(server: Running) -> None:
    with pytest.raises(httpx2.ReadTimeout), httpx2.Client(base_url=server.url) as http:
        http.post(
            "/v1/completions", json={"prompt": "1, 2,", "max_tokens": 2000, "ignore_eos": True}, timeout=0.5
        )
    wait_for(server.is_empty)
    reasons = [r.event.finish_reason for r in server.records if type(r.event).__name__ == "RequestFinished"]
    assert reasons[-1] == "abort"
