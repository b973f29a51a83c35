"""The watcher against servers on stage: absent, dying, reborn as another, locked; and a real llama-server."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from tutor.cli.main import cli
from tutor.client.attach.plain import plain
from tutor.client.attach.problems import unreachable
from tutor.client.attach.watcher import Watcher
from tutor.client.http import make_client


@pytest.fixture
async def watcher(stage) -> AsyncIterator[Watcher]:
    async with make_client(stage.url, None, 5.0) as client:
        yield Watcher(client, stage.url)


async def test_sglang_tells_who_it_is(stage, watcher: Watcher) -> None:
    info = {
        "model_path": "example-org/Example-8B-Instruct",
        "version": "0.5.1",
        "max_total_num_tokens": 45000,
        "max_running_requests": 128,
        "internal_states": [{"last_gen_throughput": 12.5}],
    }
    stage.play("sglang_1.txt", get_server_info=json.dumps(info))
    view = await watcher.poll()
    assert (view.kind, view.status) == ("sglang", "ok")
    assert view.version == "0.5.1"
    assert view.facts == ("45,000 tokens of KV",) and view.capacity == 128
    assert "requests: 5 running of 128 at most, 2 waiting" in plain(view)
    assert "SGLang 0.5.1, Example-8B-Instruct" in plain(view)


async def test_facts_are_asked_once(stage, watcher: Watcher) -> None:
    stage.play("vllm_1.txt", version='{"version": "0.11.0"}', **{"v1/models": '{"data": [{"id": "m"}]}'})
    for _ in range(3):
        view = await watcher.poll()
    assert view.version == "0.11.0" and view.num_polls == 3
    assert stage.asked.count("/version") == 1 and stage.asked.count("/metrics") == 3


async def test_llama_server_shows_its_slots(stage, watcher: Watcher, scrapes: Path) -> None:
    stage.play("llama_1.txt", slots=(scrapes / "slots.json").read_text(), props='{"total_slots": 2}')
    view = await watcher.poll()
    assert view.capacity == 2 and view.slots[0].num_decoded == 40
    assert view.kv_usage == 140 / 1024 and view.kv_note == "of all slots' contexts, from /slots"
    assert "slot 0: prompt 100 (31 cached), 40 generated, 24 to go, of 512" in plain(view)


async def test_garbage_in_slots_is_no_slots(stage, watcher: Watcher) -> None:
    stage.play("llama_1.txt", slots='{"error": 1}')
    view = await watcher.poll()
    assert view.status == "ok" and view.slots == () and view.kv_usage is None


async def test_a_server_that_goes_away_keeps_its_last_figures(stage, watcher: Watcher) -> None:
    stage.play("vllm_1.txt")
    await watcher.poll()
    stage.pages["/metrics"] = (503, b'{"error": {"message": "engine is gone"}}')
    view = await watcher.poll()
    assert (view.status, view.running) == ("silent", 8.0)
    assert view.problem == "The server answered 503: engine is gone"
    assert "s old" in plain(view)
    stage.play("vllm_2.txt")
    back = await watcher.poll()
    assert (back.status, back.running, back.problem) == ("ok", 11.0, "")


async def test_another_server_on_the_same_port_is_another_server(stage, watcher: Watcher) -> None:
    stage.play("vllm_2.txt")
    await watcher.poll()
    stage.play("sglang_1.txt")
    view = await watcher.poll()
    assert (view.kind, view.running, view.num_restarts) == ("sglang", 5.0, 1)
    assert len(view.points) == 1


async def test_a_restart_behind_a_page_without_metrics_is_counted_all_the_same(
    stage, watcher: Watcher
) -> None:
    stage.play("vllm_2.txt")
    await watcher.poll()
    stage.pages["/metrics"] = (200, b"<html>starting</html>")
    assert (await watcher.poll()).status == "no metrics"
    stage.play("vllm_1.txt")  # its counters are below those of the second scrape
    assert (await watcher.poll()).num_restarts == 1
    stage.play("sglang_1.txt")
    assert (await watcher.poll()).num_restarts == 2, "another server is a restart, too, and none is forgotten"


async def test_nobody_there(stage) -> None:
    stage.close()
    async with make_client(stage.url, None, 5.0) as client:
        view = await Watcher(client, stage.url).poll()
    assert view.status == "starting" and view.problem == "Nothing answers at this address."


def test_no_port_says_the_usual_ones() -> None:
    error = httpx2.ConnectError("All connection attempts failed")
    assert unreachable(error, "http://127.0.0.1:9") == "Nothing answers at this address."
    assert "vLLM listens on 8000" in unreachable(error, "http://127.0.0.1")


async def test_https_where_http_is_spoken(stage) -> None:
    url = stage.url.replace("http:", "https:")
    async with make_client(url, None, 5.0) as client:
        view = await Watcher(client, url).poll()
    assert view.problem == f"This server does not speak https. Try {stage.url}."


@pytest.fixture
def https_port(tmp_path: Path) -> Iterator[int]:
    """A server whose certificate nobody knows."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of this test")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", "/CN=localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([openssl, "req", "-x509", *curve, *made], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not trust us hangs up."""

    class Silent(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Silent) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


async def test_a_certificate_that_nobody_knows(
    https_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://localhost:{https_port}"
    async with make_client(url, None, 5.0) as client:
        view = await Watcher(client, url).poll()
    assert view.problem.startswith("The server's certificate is not one that this machine trusts.")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))  # what the sentence says to do
    async with make_client(url, None, 5.0) as client:
        view = await Watcher(client, url).poll()
    assert view.problem.startswith("This is a web server with no /metrics (501).")
    url = f"http://127.0.0.1:{https_port}"
    async with make_client(url, None, 5.0) as client:
        view = await Watcher(client, url).poll()
    assert view.problem.endswith(f"If it speaks https, try https://127.0.0.1:{https_port}.")


async def test_a_name_that_is_none() -> None:
    url = "http://no-such-machine.invalid:8000"
    async with make_client(url, None, 5.0) as client:
        view = await Watcher(client, url).poll()
    assert view.problem == "No machine is known by the name no-such-machine.invalid."


async def test_a_page_without_end_is_left(stage, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutor.client.attach.watcher.MOST_BYTES", 1 << 20)
    stage.pages["/metrics"] = (200, b"x 1\n" * (1 << 19))
    assert "did not end" in (await watcher.poll()).problem


async def test_half_a_page_keeps_the_figures_and_is_no_restart(stage, watcher: Watcher) -> None:
    stage.play("vllm_2.txt")
    await watcher.poll()
    whole = stage.pages["/metrics"][1]
    end = whole.index(b"vllm:generation_tokens_total{") + 40
    stage.pages["/metrics"] = (200, whole[:end])
    view = await watcher.poll()
    assert (view.status, view.running) == ("silent", 11.0)
    assert view.problem == "The page /metrics was cut off in the middle."
    stage.play("vllm_2.txt")
    again = await watcher.poll()
    assert (again.status, again.num_restarts, again.output_rate) == ("ok", 0, 0.0)


async def test_a_key_that_is_not_taken(stage) -> None:
    stage.pages["/metrics"] = (401, b"")
    async with make_client(stage.url, "wrong", 5.0) as client:
        view = await Watcher(client, stage.url).poll()
    assert view.problem == "The server answered 401: it does not take this key."


async def test_one_model_of_a_llama_server_that_routes(stage, scrapes: Path) -> None:
    missing = b'{"error": {"message": "model name is missing from the request"}}'
    stage.pages["/metrics"] = (400, missing)
    stage.pages["/metrics?model=org%2Fa%20b"] = (200, (scrapes / "llama_1.txt").read_bytes())
    stage.pages["/slots?model=org%2Fa%20b"] = (200, (scrapes / "slots.json").read_bytes())
    async with make_client(stage.url, None, 5.0) as client:
        without = await Watcher(client, stage.url).poll()
        view = await Watcher(client, stage.url, model="org/a b").poll()
    assert "model name is missing" in without.problem and "needs --model" in without.problem
    assert (view.status, view.running, view.capacity) == ("ok", 2.0, 2)


LLAMA_WITHOUT = {
    "/metrics": (501, b'{"error": {"message": "start it with --metrics"}}'),
    "/slots": (200, b'[{"id": 0, "n_ctx": 8}]'),
}
LLAMA_NOTHING = {
    "/metrics": (501, b'{"error": {"message": "This server does not support metrics endpoint. '
                      b'Start it with `--metrics`"}}'),
}  # fmt: skip
VLLM_WITHOUT = {
    "/metrics": (200, b"python_gc_objects_collected_total 7\n"),
    "/v1/models": (200, b'{"data": [{"id": "m", "owned_by": "vllm"}]}'),
}
PAGE = (200, b"<!doctype html><html><body>Welcome</body></html>")
WEB_SITE = dict.fromkeys(("/metrics", "/slots", "/v1/models", "/get_server_info", "/api/tags"), PAGE)
START_VLLM = "This is vLLM with no metrics that the tutor knows. Start vLLM without --disable-log-stats."
START_LLAMA = "This is llama-server with no /metrics (501). Start llama-server with --metrics."
START_SGLANG = "This is SGLang with no /metrics (404). Start SGLang with --enable-metrics."


@pytest.mark.parametrize(
    ("pages", "sentence"),
    [
        (LLAMA_WITHOUT, START_LLAMA),
        (LLAMA_NOTHING, START_LLAMA),
        ({"/get_server_info": (200, b"{}")}, START_SGLANG),
        (VLLM_WITHOUT, START_VLLM),
        ({"/api/tags": (200, b"{}")}, "This is Ollama with no /metrics (404). Ollama has none."),
        (WEB_SITE, "This is a web server with no metrics that the tutor knows. Give the address and port"),
        ({"/metrics": (200, b"go_threads 7\n")}, "This is a server with no metrics that the tutor knows."),
        ({"/metrics": (401, b"")}, "The server answered 401: it wants a key (--api-key)."),
    ],
)
async def test_servers_without_metrics_say_what_to_type(
    stage, watcher: Watcher, pages, sentence: str
) -> None:
    stage.pages |= pages
    view = await watcher.poll()
    assert view.problem.startswith(sentence)
    assert "\n" not in view.problem


# --- the command ------------------------------------------------------------------------------------


def test_plain_polls_print_a_block_each(stage) -> None:
    stage.play("vllm_1.txt")
    result = CliRunner().invoke(cli, ["attach", stage.url, "--plain", "-n", "2", "--interval", "0.1"])
    assert result.exit_code == 0
    blocks = result.output.strip().split("\n\n")
    assert len(blocks) == 2
    assert "requests: 8 running, 0 waiting" in blocks[1] and "KV cache: 41% in use" in blocks[1]
    assert "percentiles estimated from buckets" in blocks[1]


def test_json_polls_print_a_line_each(stage) -> None:
    stage.play("sglang_1.txt")
    result = CliRunner().invoke(cli, ["attach", stage.url, "--json", "-n", "2", "--interval", "0.1"])
    views = [json.loads(line) for line in result.output.splitlines()]
    assert [view["num_polls"] for view in views] == [1, 2]
    assert views[0]["kind"] == "sglang" and views[0]["running"] == 5.0


def test_wrong_addresses_are_wrong_usage() -> None:
    for url in ("ftp://x", "http://", "http://127.0.0.1:99999", "http:/127.0.0.1:8000", ":8000"):
        result = CliRunner().invoke(cli, ["attach", url, "--plain"])
        assert result.exit_code == 2 and "is not an address" in result.output


@pytest.mark.parametrize("page", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/metrics", "/metrics/"])
def test_addresses_of_its_pages_mean_the_server(stage, page: str) -> None:
    stage.play("vllm_1.txt")
    result = CliRunner().invoke(cli, ["attach", stage.url + page, "-n", "1"])
    assert result.exit_code == 0 and f" at {stage.url}\n" in result.output


def test_help_tells_the_exit_codes() -> None:
    for name in ("attach", "serve"):
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0 and "Exit codes: 0" in " ".join(result.output.split())


def test_a_server_without_metrics_could_not_be_watched(stage) -> None:
    result = CliRunner().invoke(cli, ["attach", stage.url, "--plain", "-n", "1"])
    assert result.exit_code == 3 and "no /metrics (404)" in result.output


# --- the real thing ---------------------------------------------------------------------------------


async def test_a_real_llama_server(llama_server: str, complete: Callable[..., int]) -> None:
    """Its counters move by what it really did, and its slots are seen."""
    async with make_client(llama_server, None, 30.0) as client:
        watcher = Watcher(client, llama_server)
        first = await watcher.poll()
        generated = complete(llama_server, "Tell me about the sea.", 12)
        second = await watcher.poll()
    assert (first.kind, first.status, first.capacity) == ("llama-server", "ok", 4)
    assert first.model.endswith(".gguf") and second.running == 0.0
    assert second.output_rate is not None
    span = second.points[-1].at - second.points[0].at
    assert second.output_rate * span == pytest.approx(generated, abs=1)
    assert next(x for x in second.latencies if x.name == "decode").mean
    assert [slot.num_context for slot in second.slots] == [1024] * 4
