"""Latencies against hand-made traces with known times."""

from __future__ import annotations

import pytest

from tutor.metrics.goodput import Targets, goodput
from tutor.metrics.latency import request_latencies
from tutor.metrics.summary import percentile, summarise
from tutor.trace import events as ev
from tutor.trace.events import TraceRecord


def records(*timed: tuple[float, ev.AnyEvent]) -> list[TraceRecord]:
    return [TraceRecord(i, ts, 0, event) for i, (ts, event) in enumerate(timed)]


def request(
    request_id: str, arrived: float, *tokens: float, end: str = "length"
) -> list[tuple[float, ev.AnyEvent]]:
    timed: list[tuple[float, ev.AnyEvent]] = [(arrived, ev.RequestArrived(request_id, request_id, 5, 9))]
    timed += [(ts, ev.TokensEmitted(request_id, (1,), "x")) for ts in tokens]
    if end:
        timed.append((tokens[-1] if tokens else arrived, ev.RequestFinished(request_id, end)))
    return timed


def test_definitions() -> None:
    (latency,) = request_latencies(records(*request("a", 1.0, 1.6, 1.7, 1.9)))
    assert latency.ttft == pytest.approx(0.6)
    assert latency.tpot == pytest.approx(0.15)
    assert latency.itl == pytest.approx((0.1, 0.2))
    assert latency.e2e == pytest.approx(0.9)


def test_one_token_has_no_tpot_and_an_unfinished_request_no_e2e() -> None:
    one, cut = request_latencies(records(*request("a", 0, 1.0), *request("b", 0, 1.0, 2.0, end="")))
    assert one.tpot is None and one.e2e == pytest.approx(1.0)
    assert cut.e2e is None and cut.tpot == pytest.approx(1.0)


def test_two_tokens_in_one_event_share_a_time() -> None:
    timed = [
        (0.0, ev.RequestArrived("a", "A", 5, 9)),
        (1.0, ev.TokensEmitted("a", (1, 2), "xy")),
        (1.0, ev.RequestFinished("a", "length")),
    ]
    (latency,) = request_latencies(records(*timed))
    assert latency.itl == (0.0,) and latency.num_output_tokens == 2


def test_nearest_rank_percentile() -> None:
    values = [float(i) for i in range(1, 101)]
    assert (
        percentile(values, 99) == 99.0 and percentile(values, 50) == 50.0 and percentile(values, 100) == 100.0
    )
    assert percentile([3.0], 1) == 3.0
    with pytest.raises(ValueError):
        percentile([], 50)
    with pytest.raises(ValueError):
        percentile([1.0], 0)


def test_goodput_counts_failures_against_it() -> None:
    latencies = request_latencies(
        records(*request("a", 0, 0.2, 0.3), *request("b", 0, 0.2, 9.0), *request("c", 0, end="abort"))
    )
    assert goodput(latencies, Targets(ttft=0.5, tpot=0.2), span=2.0) == pytest.approx(0.5)
    with pytest.raises(ValueError):
        goodput(latencies, Targets(1, 1), span=0)


def test_summary_throughput_is_tokens_over_the_wall_span() -> None:
    latencies = request_latencies(records(*request("a", 0, 1.0, 2.0), *request("b", 1.0, 3.0, 4.0)))
    summary = summarise(latencies)
    assert summary.span == pytest.approx(4.0) and summary.throughput == pytest.approx(1.0)
    assert summary.ttft is not None and summary.ttft.p50 == pytest.approx(1.0)
    empty = summarise([])
    assert empty.ttft is None and empty.throughput == 0.0
