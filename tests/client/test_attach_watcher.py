"""The watcher against servers on stage: absent, dying, reborn as another, locked; and a real llama-server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tutor.cli.main import cli
from tutor.client.attach.plain import plain
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
    assert view.facts == ("room for 45,000 tokens", "at most 128 running")
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


async def test_nobody_there(stage) -> None:
    stage.close()
    async with make_client(stage.url, None, 5.0) as client:
        view = await Watcher(client, stage.url).poll()
    assert view.status == "starting" and view.problem == "Nothing answers at this address."


LLAMA_WITHOUT = {
    "/metrics": (501, b'{"error": {"message": "start it with --metrics"}}'),
    "/slots": (200, b'[{"id": 0, "n_ctx": 8}]'),
}
START_LLAMA = "This is llama-server with no /metrics (501). Start llama-server with --metrics."
START_SGLANG = "This is SGLang with no /metrics (404). Start SGLang with --enable-metrics."


@pytest.mark.parametrize(
    ("pages", "sentence"),
    [
        (LLAMA_WITHOUT, START_LLAMA),
        ({"/get_server_info": (200, b"{}")}, START_SGLANG),
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
    for url in ("ftp://x", "http://", "http://127.0.0.1:99999"):
        result = CliRunner().invoke(cli, ["attach", url, "--plain"])
        assert result.exit_code == 2 and "is not an address" in result.output


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
