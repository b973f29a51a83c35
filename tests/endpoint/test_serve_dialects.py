"""llama-server's timings and Ollama's routes: their fields, their units, and what they leave out."""

from __future__ import annotations

import httpx2
import msgspec
import pytest
from endpoint_kit import Running, Start, wait_for

from tutor.metrics.latency import request_latencies

MODEL = "SmolLM2-135M-Instruct.Q4_1"
PROMPT = "List the numbers from one to five, in words."


@pytest.fixture(scope="module")
def server(start: Start) -> Running:
    return start(traced=True)


def lines(answer: httpx2.Response) -> list[dict]:
    return [msgspec.json.decode(line) for line in answer.text.splitlines()]


def test_timings_agree_with_the_trace(server: Running) -> None:
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 12, "temperature": 0}
    with server.client() as client:
        cold = client.post("/v1/chat/completions", json=body).json()
        warm = client.post("/v1/chat/completions", json=body).json()
    told = cold["timings"]
    assert told["cache_n"] == 0 and told["prompt_n"] == cold["usage"]["prompt_tokens"]
    assert warm["timings"]["cache_n"] + warm["timings"]["prompt_n"] == cold["usage"]["prompt_tokens"]
    assert warm["timings"]["prompt_n"] <= 16 < told["prompt_n"]
    seen = request_latencies(server.records)[0]
    assert seen.ttft is not None and seen.e2e is not None
    assert told["predicted_n"] == seen.num_output_tokens
    assert told["predicted_ms"] == pytest.approx(1e3 * (seen.e2e - seen.ttft), rel=0.03, abs=2)
    assert told["prompt_ms"] <= 1e3 * seen.ttft + 2
    gaps = told["predicted_n"] - 1  # llama-server leaves out the first token too
    assert told["predicted_per_second"] == pytest.approx(1e3 * gaps / told["predicted_ms"])
    assert told["predicted_per_token_ms"] == pytest.approx(told["predicted_ms"] / gaps)
    assert "draft_n" not in told


def test_generate_streams_lines_and_ends_with_durations(server: Running) -> None:
    body = {"model": MODEL, "prompt": PROMPT, "options": {"num_predict": 8, "temperature": 0}}
    with server.client() as client:
        answer = client.post("/api/generate", json=body)
        whole = client.post("/api/generate", json={**body, "stream": False}).json()
    assert answer.headers["content-type"] == "application/x-ndjson"
    *pieces, last = lines(answer)
    assert not any(piece["done"] for piece in pieces) and last["done"] and last["response"] == ""
    assert "".join(piece["response"] for piece in pieces) == whole["response"]
    assert last["done_reason"] == "length" and last["eval_count"] == 8
    assert "load_duration" not in last  # it was loaded, and Ollama leaves out what is 0
    parts = last["prompt_eval_duration"] + last["eval_duration"]
    assert 0 < parts <= last["total_duration"] < 60e9  # nanoseconds
    assert whole["prompt_eval_count"] == last["prompt_eval_count"]


def test_chat(server: Running) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    with server.client() as client:
        answer = client.post("/api/chat", json={"model": f"{MODEL}:latest", "messages": messages})
    *pieces, last = lines(answer)
    assert all(piece["message"]["role"] == "assistant" for piece in pieces)
    assert last["done_reason"] in ("stop", "length") and "error" not in last


def test_tags(server: Running) -> None:
    with server.client() as client:
        (tag,) = client.get("/api/tags").json()["models"]
    assert tag["name"] == f"{MODEL}:latest" and tag["size"] == 98_362_432
    assert tag["details"]["quantization_level"] == "Q4_1"


def test_show_and_ps(server: Running) -> None:
    """What `ollama show` and `ollama ps` ask."""
    with server.client() as client:
        told = client.post("/api/show", json={"model": f"{MODEL}:latest"}).json()
        assert told == client.post("/api/show", json={"name": MODEL}).json()
        (loaded,) = client.get("/api/ps").json()["models"]
        assert client.post("/api/show", json={"model": "gpt-4"}).status_code == 404
        assert client.post("/api/show", json={}).status_code == 400
    assert told["model_info"]["llama.context_length"] == 8192 and "<|im_start|>" in told["template"]
    assert loaded["name"] == f"{MODEL}:latest" and loaded["context_length"] == 256 * 16


def test_keep_alive_0_unloads_after_a_stream_too(server: Running) -> None:
    body = {"model": MODEL, "prompt": "Hi", "keep_alive": "0s", "options": {"num_predict": 2}}
    with server.client() as client:
        assert lines(client.post("/api/generate", json=body))[-1]["done"]
        wait_for(lambda: server.server.engine.state == "unloaded")
        assert client.get("/api/ps").json() == {"models": []}


def test_images_and_tools_are_refused(server: Running) -> None:
    with server.client() as client:
        for more in ({"images": ["aGk="]}, {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}):
            message = {"role": "user", "content": "Hi", **more}
            answer = client.post("/api/chat", json={"model": MODEL, "messages": [message]})
            assert answer.status_code == 400 and "not supported" in answer.json()["error"]
        for more in ({"think": True}, {"context": [1]}, {"template": "x"}, {"logprobs": True}):
            body = {"model": MODEL, "prompt": "Hi", **more}
            assert client.post("/api/generate", json=body).status_code == 400


def test_keep_alive_0_unloads_and_the_next_request_loads(server: Running) -> None:
    with server.client() as client:
        told = client.post("/api/generate", json={"model": MODEL, "keep_alive": 0}).json()
        assert told["done_reason"] == "unload"
        wait_for(lambda: server.server.engine.state == "unloaded" and server.metric("tutor:engine_up") == 0)
        assert client.get("/health").status_code == 200
        body = {"model": MODEL, "prompt": "Hi", "stream": False, "options": {"num_predict": 2}}
        cold = client.post("/api/generate", json=body).json()
        warm = client.post("/api/generate", json=body).json()
    assert cold["load_duration"] > 1e7 and "load_duration" not in warm
    assert cold["total_duration"] >= cold["load_duration"] + cold["prompt_eval_duration"]
    assert not server.deaths


def test_ollamas_errors_are_a_sentence(server: Running) -> None:
    with server.client() as client:
        for path, body, status in (
            ("/api/generate", {"model": "llama3", "prompt": "x"}, 404),
            ("/api/chat", {"model": MODEL, "messages": [{"role": "alien", "content": ""}]}, 400),
            ("/api/chat", {"model": MODEL, "messages": [], "options": {"num_predict": "x"}}, 400),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code == status and isinstance(answer.json()["error"], str)


def test_tokenize_and_back(server: Running) -> None:
    text = "naïve 👩‍🚀 <|im_end|>\n"
    with server.client() as client:
        told = client.post("/tokenize", json={"content": text, "with_pieces": True}).json()
        assert 2 not in told["tokens"]
        assert b"".join(bytes(piece["bytes"]) for piece in told["pieces"]).decode() == text
        assert client.post("/detokenize", json={"tokens": told["tokens"]}).json()["content"] == text
        special = client.post("/tokenize", json={"prompt": "<|im_end|>", "parse_special": True}).json()
        assert special["tokens"] == [2]
        assert client.post("/detokenize", json={"tokens": [10**6]}).status_code == 400
        assert client.post("/tokenize", json={}).status_code == 400
