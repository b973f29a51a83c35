"""`tutor serve` as a process: what it refuses, how it ends, the key, the trace it leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec
import pytest
from endpoint_kit import LIMIT, wait_for

from tutor.metrics.latency import request_latencies
from tutor.trace.codec import read_trace
from tutor.trace.playback import Playback

TUTOR = [sys.executable, "-m", "tutor"]
LONG = {"prompt": "1, 2,", "max_tokens": 400, "ignore_eos": True, "stream": True}


def refused(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*TUTOR, "serve", *arguments], capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, done.stderr


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its URL; it must have ended by itself when the block is left."""
    command = [*TUTOR, "serve", "--port", "0", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "TUTOR_API_KEY"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Serving at http"), process.communicate()
            yield process, line.split()[2]
        finally:
            if process.poll() is None:
                process.kill()


def test_an_open_address_needs_a_key_and_an_empty_one_is_none() -> None:
    for key in ((), ("--api-key", " ")):
        code, said = refused("--host", "0.0.0.0", *key)
        assert code == 2 and "0.0.0.0 can be reached" in said and "--api-key" in said
    code, said = refused("--host", " ", "--api-key", "secret")
    assert code == 2 and "--host needs an address" in said


def test_settings_that_cannot_work_are_named() -> None:
    code, said = refused("--max-num-seqs", "64", "--max-num-batched-tokens", "32")
    assert code == 2 and "max_num_batched_tokens" in said


def test_a_missing_model_and_a_taken_port_end_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*TUTOR, "--model", str(tmp_path / "none.gguf"), "serve", "--port", "0"],
        capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 3 and "does not exist" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused("--port", str(taken.getsockname()[1]))
    assert code == 3 and "Cannot listen" in said and "Traceback" not in said


def test_a_broken_model_says_so_at_once(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    done = subprocess.run(
        [*TUTOR, "--model", str(broken), "serve", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr and str(broken) in done.stderr


def test_it_lets_a_short_answer_finish_and_leaves_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with (
        serving("--trace", str(path), "--grace", "30") as (process, url),
        httpx2.Client(timeout=LIMIT) as http,
    ):
        with http.stream("POST", f"{url}/v1/completions", json={**LONG, "max_tokens": 40}) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        last = msgspec.json.decode(rest[-2].removeprefix("data: "))
        assert last["choices"][0]["finish_reason"] == "length"
        process.wait(LIMIT)
    store = read_trace(path)
    (seen,) = request_latencies(store.records)
    assert seen.num_output_tokens == 40 and seen.finish_reason == "length"
    view = Playback(store).view
    assert view.serving.num_used_blocks == 0 and view.header.provenance == "measured"
    done = subprocess.run(
        [*TUTOR, "replay", str(path), "--plain", "--at", "5"], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0 and "A running" in done.stdout


def test_it_ends_a_long_answer_after_the_grace_time() -> None:
    with serving("--grace", "0.3") as (process, url), httpx2.Client(timeout=LIMIT) as http:
        with http.stream("POST", f"{url}/v1/completions", json={**LONG, "max_tokens": 4000}) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            rest = [line for line in lines if line]
        assert "shutting down" in rest[-1]
        process.wait(LIMIT)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
def test_a_second_ctrl_c_ends_it_at_once_also_on_ipv6() -> None:
    """The first lets answers have their grace time, which is longer than this test may take."""
    with serving("--grace", "600", "--host", "::1") as (process, url), httpx2.Client(timeout=LIMIT) as http:
        assert url.startswith("http://[::1]:")
        with http.stream("POST", f"{url}/v1/completions", json={**LONG, "max_tokens": 4000}) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            wait_for(lambda: not _takes_connections(url))
            process.send_signal(signal.SIGINT)
            assert "shutting down" in [line for line in lines if line][-1]
        assert process.wait(LIMIT) == 0


def _takes_connections(url: str) -> bool:
    host, port = url.removeprefix("http://[").split("]:")
    try:
        socket.create_connection((host, int(port)), timeout=LIMIT).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("key", ["", "wrong", "secret"])
def test_the_key(keyed: str, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(base_url=keyed, headers=headers, timeout=LIMIT) as http:
        assert http.get("/health").status_code == http.get("/metrics").status_code == 200
        right = 200 if key == "secret" else 401
        assert http.get("/v1/models").status_code == right
        assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == right
        assert http.get("/api/tags").status_code == right


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    with serving("--host", "0.0.0.0", "--api-key", "secret", "--speculate", "4") as (process, url):
        yield url.replace("0.0.0.0", "127.0.0.1")
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)


def test_speculation_shows_in_the_timings(keyed: str) -> None:
    headers = {"authorization": "Bearer secret"}
    text = "one two three four one two three four one two three four one two"
    body = {"prompt": text, "max_tokens": 24, "temperature": 0}
    with httpx2.Client(base_url=keyed, headers=headers, timeout=LIMIT) as http:
        told = http.post("/v1/completions", json=body).json()["timings"]
        metrics = http.get("/metrics").text
    assert told["draft_n"] >= told["draft_n_accepted"] > 0
    counted = [
        line for line in metrics.splitlines() if line.startswith("vllm:spec_decode_num_draft_tokens_total")
    ]
    assert float(counted[0].split()[-1]) == told["draft_n"]
