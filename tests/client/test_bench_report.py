"""What the report says of servers that do other than they were asked, and whether it fits the terminal."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest
from bench_kit import load, run
from scripted_openai import Script, ScriptedServer

from tutor.client.bench.driver import Progress
from tutor.client.bench.findings import findings
from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.prepare import find_model_id
from tutor.client.bench.record import latency
from tutor.client.bench.report import report
from tutor.client.bench.result import Result, in_flight_by_second, seen_by_second
from tutor.client.bench.session import Plan, bench
from tutor.client.bench.vllm_keys import as_json
from tutor.client.http import ClientError, Refused, Unreachable, make_client, why


def told(result: Result, about: str) -> list[str]:
    return [finding.sentence for finding in findings(result) if finding.about == about]


@pytest.fixture
def quick(scripted: ScriptedServer) -> ScriptedServer:
    scripted.script = Script(ttft=0.002, gap=0.001)
    return scripted


# --- answers that are other than asked for ----------------------------------------------------------


async def test_an_answer_without_text_is_an_answer(quick: ScriptedServer) -> None:
    """The server did its work: the request counts, its E2E too. There is no first token to time."""
    quick.script.behave = lambda n: "empty" if n < 2 else "ok"
    result = await run(quick)
    assert (result.completed, result.failed) == (12, 0)
    assert result.ttft is not None and result.e2e is not None
    assert (result.ttft.count, result.e2e.count) == (10, 12)
    assert told(result, "tokens") == ["2 of 12 answers had no text: they have no TTFT and meet no target."]
    quick.script.behave = lambda n: "empty"
    nothing = await run(quick)
    assert nothing.ttft is None and ["TTFT", "-", "-", "-", "-"] in map(
        str.split, report(nothing).splitlines()
    )


async def test_several_tokens_in_a_chunk(quick: ScriptedServer) -> None:
    quick.script.behave = lambda n: "double"
    result = await run(quick)
    assert result.num_output_tokens == 72 and result.itl is not None and result.itl.count == 12 * 2
    of_all = [latency(record) for record in result.run.records]
    for one in of_all:  # TPOT counts tokens, ITL counts chunks
        assert one.ttft is not None and one.e2e is not None and len(one.itl) == 2
        assert one.tpot == pytest.approx((one.e2e - one.ttft) / 5)
    assert result.tpot is not None
    assert result.tpot.mean.value == pytest.approx(sum(one.tpot or 0.0 for one in of_all) / 12)
    assert "Each chunk carries 2.0 tokens" in told(result, "tokens")[0]


async def test_a_model_that_is_not_listed(quick: ScriptedServer) -> None:
    """llama-server answers whatever model is asked for; the scripted server does, too."""
    result = await run(quick, model="nosuch")
    assert told(result, "model") == ["The server lists scripted and not nosuch; what answered is not known."]
    assert told(await run(quick, model="scripted"), "model") == told(await run(quick), "model") == []


async def test_one_token_has_no_tpot(quick: ScriptedServer) -> None:
    result = await run(quick, load(output_tokens=parse_lengths("1")))
    text = report(result)
    (row,) = (line.split() for line in text.splitlines() if line.startswith("TPOT  "))
    assert result.tpot is None and row == ["TPOT", "-", "-", "-", "-"]
    assert "Answers of one token have no TPOT" in " ".join(text.split())


async def test_a_web_page_is_no_answer(quick: ScriptedServer) -> None:
    quick.script.behave = lambda n: "html" if n == 3 else "ok"
    result = await run(quick)
    assert result.run.records[3].error == "the answer is not a stream of events but text/html"


async def test_answers_that_end_early_are_told(quick: ScriptedServer) -> None:
    quick.script.behave = lambda n: "early"
    result = await run(quick)
    assert "Answers have 3.0 tokens on average, 6.0 were asked for" in told(result, "lengths")[0]
    meant = await run(quick, load(ignore_eos=False))
    assert told(meant, "lengths") == []


async def test_prompts_shorter_than_the_template(quick: ScriptedServer) -> None:
    """The scripted server adds 5 tokens to each prompt."""
    result = await run(quick, load(input_tokens=parse_lengths("1")))
    assert told(result, "lengths") == [
        "Prompts have 6 tokens on average, 1 were asked for: the chat template alone has about 5."
    ]
    assert told(await run(quick, load(input_tokens=parse_lengths("3"))), "lengths") == []  # 6: near enough


async def test_a_cached_template_is_no_warning(quick: ScriptedServer) -> None:
    """5 of 20 prompt tokens are the same in every request; the server has them cached after the first."""
    quick.script.cached = 5
    result = await run(quick, load(input_tokens=parse_lengths("20")))
    (finding,) = (x for x in findings(result) if x.about == "cache")
    assert not finding.warns and "25% of the prompt tokens" in finding.sentence
    quick.script.cached = 15
    again = await run(quick, load(input_tokens=parse_lengths("20")))
    (warning,) = (x for x in findings(again) if x.about == "cache")
    assert warning.warns and "25% are alike in all prompts" in warning.sentence


# --- what failed, and how long it took --------------------------------------------------------------


async def test_the_commonest_reason_comes_first(quick: ScriptedServer) -> None:
    quick.script.behave = lambda n: "500" if n < 5 else "no finish" if n == 7 else "ok"
    (sentence,) = told(await run(quick), "failures")
    assert sentence == (
        "6 of 12 requests failed and are in no latency. 5 x 500: out of luck. "
        "1 x the stream ended without a finish reason."
    )


async def test_reasons_that_differ_in_numbers_are_one(quick: ScriptedServer) -> None:
    result = await run(quick)
    words = [f"400: {i} tokens are too many" if i < 9 else "503: gone" for i in range(12)]
    records = tuple(
        msgspec.structs.replace(x, error=w) for x, w in zip(result.run.records, words, strict=True)
    )
    failed = msgspec.structs.replace(
        result, failed=12, completed=0, run=msgspec.structs.replace(result.run, records=records)
    )
    assert told(failed, "failures")[0].endswith("9 x 400: 0 tokens are too many. 3 x 503: gone.")
    assert "No request went well" in report(failed) and "TTFT" not in report(failed)


async def test_fewer_requests_than_the_duration_has_room_for(quick: ScriptedServer) -> None:
    result = await run(quick, load(duration=60.0))
    assert any("(-n) were over after" in sentence for sentence in told(result, "short"))
    assert not any("(-n)" in sentence for sentence in told(await run(quick), "short"))


async def test_the_seconds_go_on_while_no_answer_ends(quick: ScriptedServer) -> None:
    quick.script.ttft = 0.7
    seen: list[Progress] = []
    await bench(Plan(url=quick.url, load=load(requests=1, concurrency=1), probe=False), on_change=seen.append)
    assert [x.done for x in seen] == [0, 1] and seen[0].in_flight == 1 and seen[0].seconds >= 0.5


async def test_the_warm_up_says_how_far_it_is(quick: ScriptedServer) -> None:
    said: list[str] = []
    await bench(Plan(url=quick.url, load=load(warmup=3), probe=False), said.append)
    assert [x for x in said if x.startswith("warming up: ")] == [
        f"warming up: {i} of 3 requests done" for i in (1, 2, 3)
    ]


# --- servers that cannot be used --------------------------------------------------------------------


async def test_what_to_try_next(stage: Any) -> None:
    async with make_client(stage.url, None, 5.0) as client:
        stage.pages["/v1/models"] = (401, b'{"error": {"message": "Invalid API key."}}')
        with pytest.raises(Refused, match=r"Invalid API key\. Give its key with --api-key"):
            await find_model_id(client)
        stage.pages["/v1/models"] = (404, b"<!doctype html><title>Oh no</title>")
        with pytest.raises(Refused, match=r"404: an HTML page, Oh no\. Asked for /v1/models: is this an"):
            await find_model_id(client)
        stage.pages["/v1/models"] = (200, b"<!doctype html><title>Welcome</title>")
        with pytest.raises(ClientError, match="is this an OpenAI-compatible server"):
            await find_model_id(client)


async def test_https_where_http_is_spoken(stage: Any) -> None:
    async with make_client(stage.url.replace("http:", "https:"), None, 5.0) as client:
        with pytest.raises(Unreachable, match="does not speak https; try http"):
            await find_model_id(client)


def test_why_there_is_no_connection() -> None:
    for reason, words in (
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "its certificate is not trusted"),
        ("[Errno -2] Name or service not known", "no host has this name"),
        ("All connection attempts failed", "nothing answers at this address"),
    ):
        assert why(httpx2.ConnectError(reason)) == words


# --- the table --------------------------------------------------------------------------------------


async def test_many_percentiles_and_long_times_fit(quick: ScriptedServer) -> None:
    """Columns that do not fit beside each other follow below; figures stay under their heads."""
    asked = load(arrivals="poisson", rate=500.0, concurrency=None)
    result = await run(quick, asked, percentiles=(1.0, 25.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0))
    assert result.ttft is not None
    slow = msgspec.structs.replace(
        result,
        ttft=msgspec.structs.replace(
            result.ttft,
            percentiles={
                q: msgspec.structs.replace(x, value=x.value + 500, low=500.0, high=5000.0)
                for q, x in result.ttft.percentiles.items()
            },
        ),
    )
    for width, blocks in ((60, 4), (79, 3), (119, 2)):
        lines = report(slow, width).splitlines()
        assert max(map(len, lines)) <= max(width, 79)
        heads = [i for i, line in enumerate(lines) if line.startswith("ms ")]
        assert len(heads) >= blocks, "\n".join(lines)
        for i in heads:
            assert max(map(len, lines[i : i + 8])) <= width
            for word in lines[i].split()[1:]:
                end = lines[i].index(f" {word}") + len(word)
                assert all(
                    row[end].strip() and row[end + 1 : end + 2] in ("", " ") for row in lines[i + 1 : i + 8]
                )


async def test_a_question_mark_is_explained(quick: ScriptedServer) -> None:
    text = " ".join(report(await run(quick)).split())
    assert "-?]" in text and "? where so few requests have no bound" in text
    assert "An upper bound takes 59 for P95, 299 for P99." in text
    plenty = await run(quick, load(requests=70), percentiles=(50.0, 95.0))
    assert "?" not in report(plenty)


async def test_in_flight_second_by_second(quick: ScriptedServer) -> None:
    """From 0.0 to 1.5, 0.5 to 1.0 and 1.2 to 2.2 of a run of 2.2 s."""
    result = await run(quick, load(requests=3))
    times = ((0.0, 1.5), (0.5, 1.0), (1.2, 2.2))
    records = tuple(
        msgspec.structs.replace(x, sent_at=100.0 + a, finished_at=100.0 + b)
        for x, (a, b) in zip(result.run.records, times, strict=True)
    )
    changed = msgspec.structs.replace(result.run, started_at=100.0, duration=2.2, records=records)
    assert in_flight_by_second(changed) == pytest.approx([1.5, 1.3, 1.0])
    assert seen_by_second(changed) == [2, 3, 1]  # the second one ended just as the second second began


async def test_concurrency_by_vllms_count(quick: ScriptedServer) -> None:
    """vLLM counts whom a second has seen, so its figure exceeds what was in flight at once."""
    answer = as_json(await run(quick))
    assert answer["max_concurrent_requests"] == 12 and answer["tutor"]["most_in_flight"] == 3  # type: ignore[index]
