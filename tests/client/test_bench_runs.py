"""Whole runs against a server whose latencies are known. Late timers of a busy machine only add to them."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

import msgspec
import pytest
from bench_kit import load, run
from scripted_openai import Script, ScriptedServer

from tutor.client.bench.driver import Driver, Progress
from tutor.client.bench.findings import findings
from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.plot import plot
from tutor.client.bench.prepare import find_model_id
from tutor.client.bench.record import latency
from tutor.client.bench.report import report
from tutor.client.bench.result import Result
from tutor.client.bench.stream import Target, ask
from tutor.client.bench.workload import Load, Ratio, make_items
from tutor.client.http import ClientError, Refused, Unreachable, make_client
from tutor.metrics.goodput import Targets

SLACK = 0.06  # what a loaded machine may add to one sleep


def about(result: Result) -> dict[str, bool]:
    return {finding.about: finding.warns for finding in findings(result)}


# --- what is measured -------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
async def test_latencies_of_a_known_server(scripted: ScriptedServer, endpoint: str) -> None:
    scripted.script = Script(ttft=0.05, gap=0.02)
    result = await run(scripted, endpoint=endpoint)
    assert (result.completed, result.failed) == (12, 0)
    all_of_them = [latency(record) for record in result.good]
    for got in all_of_them:
        assert got.ttft is not None and got.ttft >= 0.05  # not the chunk that has a role and no text
        assert got.e2e is not None and got.e2e >= 0.15 - 0.002
        assert len(got.itl) == 5 and got.num_output_tokens == 6
    # a machine that is busy elsewhere delays single chunks
    assert median(got.ttft or 0.0 for got in all_of_them) < 0.05 + SLACK
    assert 0.02 - 0.002 <= median(got.tpot or 0.0 for got in all_of_them) < 0.02 + SLACK
    assert median(got.e2e or 0.0 for got in all_of_them) < 0.15 + 6 * SLACK
    assert result.num_output_tokens == 72 and result.rates.output_tokens == pytest.approx(
        72 / result.run.duration
    )
    assert result.num_input_tokens == 12 * 40  # the words were chosen so that the tokens are what was asked


async def test_the_closed_loop_keeps_so_many_in_flight(scripted: ScriptedServer) -> None:
    result = await run(scripted, load(requests=10, concurrency=4))
    assert scripted.script.most_in_flight == 4 == result.run.most_in_flight


async def test_the_open_loop_does_not_wait_for_a_stalled_server(scripted: ScriptedServer) -> None:
    """Coordinated omission: all 20 requests must feel the stall, not just those in flight at first."""
    scripted.script = Script(ttft=0.01, gap=0.0, stall_until=scripted.now() + 0.7)
    asked = load(arrivals="constant", requests=20, concurrency=None, rate=100.0)
    result = await run(scripted, asked)
    assert scripted.script.most_in_flight == 20
    waits = sorted(latency(record, since_plan=True).ttft or 0.0 for record in result.good)
    assert waits[0] > 0.2 and waits[-1] - waits[0] == pytest.approx(0.19, abs=SLACK)
    scripted.script = Script(ttft=0.01, gap=0.0, stall_until=scripted.now() + 1.0)
    closed = await run(scripted, load(requests=20, concurrency=2))
    slow = [x for record in closed.good if (x := latency(record).ttft or 0.0) > 0.4]
    assert len(slow) == 2  # the closed loop hides it from the other 18


async def test_a_cap_on_the_open_loop_shows_in_the_due_times(scripted: ScriptedServer) -> None:
    scripted.script = Script(ttft=0.1, gap=0.0)
    result = await run(scripted, load(arrivals="constant", requests=8, concurrency=1, rate=50.0))
    assert scripted.script.most_in_flight == 1
    assert result.ttft and result.planned_ttft
    assert result.planned_ttft.mean.value > 3 * result.ttft.mean.value
    assert about(result)["client"] is False  # it was asked for, so it is said and no warning
    assert "TTFT due" in report(result)


async def test_a_duration_ends_the_sending(scripted: ScriptedServer) -> None:
    scripted.script = Script(ttft=0.05, gap=0.0)
    result = await run(scripted, load(requests=1000, concurrency=2, duration=0.4))
    assert 2 <= result.completed <= 18 and not result.run.interrupted
    opened = await run(
        scripted, load(requests=1000, arrivals="constant", rate=20.0, concurrency=None, duration=0.5)
    )
    assert opened.completed == 10


async def test_warm_up_and_probe_are_not_in_the_result(scripted: ScriptedServer) -> None:
    result = await run(scripted, load(warmup=5), probe=True)
    assert len(scripted.script.bodies) == 5 + 6 + 12
    assert result.completed == len(result.run.records) == 12
    prompts = [body["messages"][0]["content"] for body in scripted.script.bodies]
    assert len(set(prompts)) == 5 + 3 + 12


async def test_goodput_counts_what_meets_both(scripted: ScriptedServer) -> None:
    scripted.script = Script(ttft=0.01, behave=lambda n: "500" if n % 3 == 0 else "ok")
    result = await run(scripted, targets=Targets(ttft=10.0, tpot=10.0))
    assert result.rates.goodput == pytest.approx(8 / result.run.duration)
    strict = await run(scripted, targets=Targets(ttft=0.001, tpot=10.0))
    assert strict.rates.goodput == 0.0


# --- what goes wrong --------------------------------------------------------------------------------

FATES = {
    "500": "500: out of luck",
    "disconnect": "the server closed the connection in the middle",
    "error event": "the engine died",
    "no finish": "the stream ended without a finish reason",
    "hang": "no byte came within the time limit",
}


@pytest.mark.parametrize("fate", FATES)
async def test_failures_are_counted_and_in_no_latency(scripted: ScriptedServer, fate: str) -> None:
    scripted.script = Script(ttft=0.01, gap=0.001, behave=lambda n: fate if n == 4 else "ok")
    result = await run(scripted, timeout=2.0)
    assert (result.completed, result.failed) == (11, 1)
    assert [record.error for record in result.run.records if record.error] == [FATES[fate]]
    assert result.ttft is not None and result.ttft.count == 11
    assert about(result)["failures"] and FATES[fate][:20] in report(result)


async def test_a_kept_connection_that_is_closed_costs_no_request(scripted: ScriptedServer) -> None:
    scripted.script = Script(gap=0.001, behave=lambda n: "stale" if n in (3, 11) else "ok")
    result = await run(scripted)
    assert (result.completed, result.failed) == (12, 0)
    assert sum(record.resent for record in result.run.records) == 2 and about(result)["connections"] is False
    scripted.script = Script(gap=0.001, behave=lambda n: "stale" if n in (3, 4) else "ok")
    twice = await run(scripted, load(concurrency=1))
    assert (twice.completed, twice.failed) == (11, 1)


async def test_no_usage_means_chunks_are_counted_and_said(scripted: ScriptedServer) -> None:
    scripted.script = Script(gap=0.001, behave=lambda n: "no usage", cached=None)
    result = await run(scripted)
    assert result.num_output_tokens == 72 and about(result)["tokens"]
    assert "reports no usage" in report(result)


async def test_a_server_without_ignore_eos_is_asked_without_it(scripted: ScriptedServer) -> None:
    scripted.script = Script(gap=0.001, refuses_ignore_eos=True)
    result = await run(scripted)
    assert result.completed == 12 and about(result)["tokens"] is False
    assert all("ignore_eos" not in body for body in scripted.script.bodies)


async def test_servers_that_cannot_be_used(scripted: ScriptedServer, stage: Any) -> None:
    async with make_client(stage.url, None, 5.0) as client:
        with pytest.raises(Refused, match="404: no such page"):
            await find_model_id(client)
        stage.pages["/v1/models"] = (200, b"<html>")
        with pytest.raises(ClientError, match="OpenAI-compatible"):
            await find_model_id(client)
        stage.pages["/v1/models"] = (200, b'{"data": []}')
        with pytest.raises(ClientError, match="--model"):
            await find_model_id(client)
        stage.close()
        with pytest.raises(Unreachable, match="nothing answers"):
            await find_model_id(client)
    scripted.script = Script(behave=lambda n: "500")
    with pytest.raises(ClientError, match="No warm-up request succeeded"):
        await run(scripted, load(warmup=2))


async def test_stopping_keeps_what_finished_and_says_so(scripted: ScriptedServer) -> None:
    scripted.script = Script(ttft=0.02, gap=0.002, behave=lambda n: "hang" if n >= 6 else "ok")
    asked = load(requests=50, concurrency=2)
    async with make_client(scripted.url, None, 60.0) as client:
        driver = Driver(client, Target("scripted"), make_items(asked, Ratio()), asked)

        def watch(progress: Progress) -> None:
            if progress.done == 6:
                asyncio.get_running_loop().call_later(0.2, driver.stop)

        got = await driver.run(watch)
    assert got.interrupted and sum(record.ok for record in got.records) == 6
    assert [record.cut for record in got.records] == [False] * 6 + [True] * 2
    assert got.planned == 50 and got.duration < 5.0


# --- what is said before one believes it ------------------------------------------------------------


async def test_a_busy_client_says_that_it_is_the_bottleneck(scripted: ScriptedServer) -> None:
    asked = load(requests=12, concurrency=3)
    slow = await _slowed(scripted, asked, seconds=0.03)
    assert about(slow)["client"] is True
    assert any("event loop was late by" in finding.sentence for finding in findings(slow))


async def _slowed(server: ScriptedServer, asked: Load, seconds: float) -> Result:
    """A run whose client computes for so long after each answer."""
    from tutor.client.bench.result import Setup, make_result

    async with make_client(server.url, None, 5.0) as client:
        target = Target("scripted")
        driver = Driver(client, target, make_items(asked, Ratio()), asked)
        got = await driver.run(lambda progress: _burn(seconds))
    return make_result(Setup(url=server.url, target=target, load=asked), got)


def _burn(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def test_gathered_chunks_are_noticed(scripted: ScriptedServer) -> None:
    scripted.script = Script(gap=0.01, behave=lambda n: "gathered")
    result = await run(scripted)
    assert result.coalesced_share > 0.5
    assert any("came together" in finding.sentence for finding in findings(result))


async def test_cached_prompts_are_noticed(scripted: ScriptedServer) -> None:
    scripted.script = Script(gap=0.001, cached=30)
    result = await run(scripted)
    assert result.cache.share == pytest.approx(30 / 40) and about(result)["cache"] is True
    meant = await run(scripted, load(shared=0.8))
    assert about(meant)["cache"] is False
    scripted.script = Script(gap=0.001, cached=0)
    assert "cache" not in about(await run(scripted, probe=True))


async def test_a_cache_that_nobody_reports_is_found_by_asking_twice(scripted: ScriptedServer) -> None:
    seen: set[str] = set()

    def behave(n: int) -> str:
        prompt = scripted.script.bodies[n]["messages"][0]["content"]
        scripted.script.ttft = 0.005 if prompt in seen else 0.1
        seen.add(prompt)
        return "ok"

    scripted.script = Script(gap=0.001, cached=None, behave=behave)
    result = await run(scripted, load(concurrency=1, requests=2), probe=True)
    assert result.setup.probe is not None and result.setup.probe.caches
    assert any("times sooner" in finding.sentence for finding in findings(result))


async def test_a_short_run_says_how_many_requests_it_needs(scripted: ScriptedServer) -> None:
    result = await run(scripted)
    assert about(result)["short"] is True
    assert "10 need 200 requests" in report(result)


async def test_the_report_fits_and_the_plot_draws(scripted: ScriptedServer) -> None:
    scripted.script = Script(ttft=0.4, gap=0.02)
    result = await run(scripted, load(requests=12, concurrency=2))
    text = report(result)
    assert max(map(len, text.splitlines())) <= 80
    assert "(E2E - TTFT)/(n - 1)" in text and "E2E/n" in text and "MEASURED" in text
    drawn = plot(result, 79)
    assert "output tokens/s" in drawn and max(map(len, drawn.splitlines())) <= 79
    assert plot(result, 79, ascii_only=True).isascii()


async def test_an_answer_is_read_from_the_wire_as_it_is(scripted: ScriptedServer) -> None:
    async with make_client(scripted.url, None, 5.0) as client:
        record = await ask(client, Target("scripted"), "one two", 3)
    assert record.text == " w0 w1 w2" and record.finish_reason == "length" and record.num_input_tokens == 7


async def test_the_warm_up_caches_what_prompts_share(scripted: ScriptedServer) -> None:
    """A server that caches prefixes has all of it before the first measured request arrives."""
    at_arrival: list[int] = []

    def behave(n: int) -> str:
        at_arrival.append(scripted.script.in_flight)
        return "ok"

    scripted.script = Script(ttft=0.05, gap=0.001, behave=behave)
    asked = load(shared=0.5, warmup=3, concurrency=3, input_tokens=parse_lengths("20-60"))
    await run(scripted, asked)
    prompts = [body["messages"][0]["content"].split() for body in scripted.script.bodies]
    assert len(prompts) == 3 + 12 and len({tuple(words) for words in prompts}) == 15
    for words in prompts[3:]:
        common = round(0.5 * len(words))
        assert prompts[0][:common] == words[:common]
    assert at_arrival[:3] == [1, 1, 2]  # the first alone, then the others together


async def test_late_loops_are_compared_with_what_they_distort(scripted: ScriptedServer) -> None:
    scripted.script = Script(ttft=0.02, gap=0.001)
    result = await run(scripted)
    assert result.itl is not None
    typical, tail = result.itl.percentiles[50.0], result.itl.percentiles[99.0]

    def told(p95: float, p99: float, median: float, highest: float) -> bool | None:
        client = msgspec.structs.replace(result.run.client, lag_p95=p95, lag_p99=p99, cpu_share=0.1)
        assert result.itl is not None
        spread = {
            50.0: msgspec.structs.replace(typical, value=median),
            99.0: msgspec.structs.replace(tail, value=highest),
        }
        changed = msgspec.structs.replace(
            result,
            run=msgspec.structs.replace(result.run, client=client),
            itl=msgspec.structs.replace(result.itl, percentiles=spread),
            coalesced_share=0.0,
        )
        return about(changed).get("client")

    assert told(0.0005, 0.0033, 0.040, 0.600) is None  # rare, and small beside the tail
    assert told(0.0005, 0.0033, 0.040, 0.045) is False  # rare, and the tail is as small
    assert told(0.0033, 0.0040, 0.040, 0.600) is True  # one reading in 20
    assert told(0.0033, 0.0040, 0.100, 0.600) is None  # but the gaps are long
