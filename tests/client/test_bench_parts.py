"""The parts of the load generator alone: events, lengths, schedules, intervals, latencies."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest

from tutor.client.bench.lengths import LengthError, parse_lengths
from tutor.client.bench.record import RequestRecord, latency
from tutor.client.bench.workload import Load, Ratio, arrival_times, fresh_prompts, make_items
from tutor.client.http import AddressError, base_url, is_loopback, message_of
from tutor.client.sse import EventParser


def load(**changes: object) -> Load:
    settings: dict[str, object] = {
        "arrivals": "closed", "requests": 20, "concurrency": 4, "input_tokens": parse_lengths("40"),
        "output_tokens": parse_lengths("5-9"),
    }  # fmt: skip
    return Load(**(settings | changes))  # type: ignore[arg-type]


# --- events -----------------------------------------------------------------------------------------


def test_events_survive_any_split() -> None:
    wire = (
        ': hello\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata:é\ndata: two\n\nid: 7\n\ndata: [DONE]\n\n'.encode()
    )
    want = [b'{"a": 1}', "é\ntwo".encode(), b"[DONE]"]
    rng = random.Random(3)
    for _ in range(300):
        cuts = sorted(rng.sample(range(len(wire)), rng.randint(0, 9)))
        parser = EventParser()
        got = [e for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True) for e in parser.feed(wire[a:b])]
        assert got == want


# --- lengths and loads ------------------------------------------------------------------------------


def test_lengths() -> None:
    rng = np.random.default_rng(0)
    assert parse_lengths("7").draw(3, rng) == [7, 7, 7]
    uniform = parse_lengths("3-5").draw(500, rng)
    assert set(uniform) == {3, 4, 5}
    normal = parse_lengths("100~20").draw(5000, rng)
    assert statistics.mean(normal) == pytest.approx(100, abs=1)
    assert statistics.stdev(normal) == pytest.approx(20, abs=1)
    assert min(parse_lengths("2~9").draw(500, rng)) >= 1 and max(normal) <= parse_lengths("100~20").longest


@pytest.mark.parametrize("text", ["", "0", "-5", "9-3", "a", "1.5", "0~3", "5-"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(LengthError, match="50-200"):
        parse_lengths(text)


def test_poisson_gaps_are_exponential() -> None:
    times = arrival_times("poisson", 5.0, 20_000, np.random.default_rng(1))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() == pytest.approx(0.2, rel=0.03)  # an exponential's deviation is its mean
    assert (gaps > 0.2).mean() == pytest.approx(np.exp(-1), abs=0.02)
    assert arrival_times("constant", 4.0, 3, np.random.default_rng(1)) == [0.0, 0.25, 0.5]


def test_the_seed_makes_the_load() -> None:
    assert make_items(load(), Ratio()) == make_items(load(), Ratio())
    assert make_items(load(seed=1), Ratio()) != make_items(load(), Ratio())
    slow = make_items(load(arrivals="poisson", rate=1.0), Ratio())
    fast = make_items(load(arrivals="poisson", rate=9.0), Ratio())
    assert [x.prompt for x in slow] == [x.prompt for x in fast]


def test_prompts_share_what_was_asked_and_nothing_else() -> None:
    items = make_items(load(shared=0.5), Ratio())
    heads = {tuple(x.prompt.split()[:20]) for x in items}
    tails = {tuple(x.prompt.split()[20:]) for x in items}
    assert len(heads) == 1 and len(tails) == len(items)
    assert len({tuple(x.prompt.split()[:4]) for x in make_items(load(), Ratio())}) == len(items)
    assert not set(fresh_prompts(load(), Ratio(), 5, 1)) & {x.prompt for x in make_items(load(), Ratio())}


def test_words_make_the_asked_number_of_tokens() -> None:
    items = make_items(load(), Ratio(per_word=1.25, overhead=10))
    assert {len(x.prompt.split()) for x in items} == {24}
    assert Ratio(1.0, 50).words(20) == 1


# --- latencies --------------------------------------------------------------------------------------


def record(**changes: object) -> RequestRecord:
    fields: dict[str, object] = {
        "index": 0, "planned_at": 9.0, "sent_at": 10.0, "token_times": (10.5, 10.6, 10.9),
        "finished_at": 11.0, "num_output_tokens": 6, "finish_reason": "length",
    }  # fmt: skip
    return RequestRecord(**(fields | changes))  # type: ignore[arg-type]


def test_latencies_by_definition() -> None:
    got = latency(record())
    assert got.ttft == pytest.approx(0.5) and got.e2e == pytest.approx(1.0)
    assert got.tpot == pytest.approx((1.0 - 0.5) / 5)  # by the server's count, not by chunks
    assert got.itl == pytest.approx((0.1, 0.3))
    assert got.finish_reason == "length"


def test_latency_since_it_was_due() -> None:
    late = latency(record(), since_plan=True)
    assert late.ttft == pytest.approx(1.5) and late.e2e == pytest.approx(2.0)
    assert late.tpot == pytest.approx(0.1)


def test_one_token_and_failures() -> None:
    assert latency(record(num_output_tokens=1)).tpot is None
    failed = latency(record(error="gone"))
    assert failed.finish_reason == "error"
    assert latency(record(token_times=(), finished_at=None)).ttft is None
    assert not record(cut=True).ok and not record(error="x").ok and record().ok


# --- addresses and errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("http://a:1/v1/chat/completions", "http://a:1"),
        ("http://a:1/x/v1/models/", "http://a:1/x"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        (" http://localhost:1/v1/ ", "http://localhost:1"),
        ("https://example.org/api/v1", "https://example.org/api"),
        ("[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses(text: str, root: str) -> None:
    assert base_url(text) == root


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "ftp://a",
        "http://a:x",
        "http://a?b=1",
        "http://a:70000",
        "http://a b:1",
        "http://a..b",
        "80",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError, match="not an address"):
        base_url(text)


def test_loopback_is_known() -> None:
    assert (
        is_loopback("http://127.0.0.9:1") and is_loopback("http://[::1]") and is_loopback("http://localhost")
    )
    assert not is_loopback("http://example.org") and not is_loopback("http://10.0.0.1")


def test_messages_of_every_shape() -> None:
    assert message_of(b'{"error": {"message": "too  long"}}') == "too long"
    assert message_of(b'{"error": "no such model"}') == "no such model"
    assert message_of(b'{"detail": "x"}') == "x"
    assert message_of(b'{"detail": [{"loc": 1}]}') == '{"detail": [{"loc": 1}]}'
    assert message_of(b"<html><style>b {}</style>\n502</html>") == "an HTML page: 502"
    assert message_of(b"<!DOCTYPE html><title>Not\nfound</title><p>x") == "an HTML page, Not found"
    assert message_of(b"") == "no reason given"
