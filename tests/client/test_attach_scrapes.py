"""Recorded scrapes of each server become the right figures; what is missing or garbled costs only itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tutor.client.attach.dialects import recognise
from tutor.client.attach.fold import Fold
from tutor.client.attach.plain import plain
from tutor.client.attach.quantile import gained, quantile
from tutor.client.attach.scrape import Histogram, Scrape, parse
from tutor.client.attach.slots import parse_slots, usage_of
from tutor.client.attach.views import LatencyView, ServerView

URL = "http://127.0.0.1:8000"


def read(scrapes: Path, name: str) -> Scrape:
    return parse((scrapes / name).read_text())


def watched(scrapes: Path, server: str, seconds: float = 10.0) -> ServerView:
    """The view after both scrapes of a server, `seconds` apart."""
    first, second = read(scrapes, f"{server}_1.txt"), read(scrapes, f"{server}_2.txt")
    dialect = recognise(first)
    assert dialect is not None
    fold = Fold(dialect)
    fold.take(first, 100.0)
    fold.view(URL)
    fold.take(second, 100.0 + seconds)
    return fold.view(URL)


def latency(view: ServerView, name: str) -> LatencyView:
    return next(x for x in view.latencies if x.name == name)


@pytest.mark.parametrize(
    ("server", "kind"), [("vllm", "vllm"), ("sglang", "sglang"), ("llama", "llama-server")]
)
def test_each_server_is_recognised(scrapes: Path, server: str, kind: str) -> None:
    dialect = recognise(read(scrapes, f"{server}_1.txt"))
    assert dialect is not None and dialect.kind == kind


def test_the_tutors_own_server_is_not_taken_for_vllm(scrapes: Path) -> None:
    text = (scrapes / "vllm_1.txt").read_text() + "tutor:engine_up 1.0\n"
    dialect = recognise(parse(text))
    assert dialect is not None and dialect.kind == "tutor"


def test_vllm_figures(scrapes: Path) -> None:
    view = watched(scrapes, "vllm")
    assert (view.running, view.waiting, view.kv_usage) == (11.0, 3.0, 0.63)
    assert view.hit_rate == pytest.approx(21_500 / 50_000)  # of the ten seconds between the scrapes
    assert view.hit_rate_before == pytest.approx(261_500 / 650_000)
    assert (view.preemptions, view.preemption_rate) == (6.0, 0.2)
    assert view.input_rate == 5000.0 and view.output_rate == 510.0
    assert view.request_rate == 10.0  # all finish reasons together
    assert view.model == "example-org/Example-8B-Instruct"
    assert view.missing == () and view.num_restarts == 0


def test_latencies_cover_the_window_only(scrapes: Path) -> None:
    view = watched(scrapes, "vllm")
    ttft = latency(view, "TTFT")
    # 100 new requests: 10 to 80 ms, 30 to 100 ms, 50 to 250 ms, 10 to 500 ms
    assert (ttft.count, ttft.window) == (100, 10.0)
    assert ttft.mean == pytest.approx(0.157)
    p50, p95, _ = ttft.percentiles
    assert p50.value == pytest.approx(0.1 + 0.15 * 10 / 50)
    assert p95.value == pytest.approx(0.25 + 0.25 * 5 / 10)
    assert [x.name for x in view.latencies] == ["TTFT", "ITL", "E2E", "queue"]


def test_a_quiet_server_shows_what_it_measured_since_its_start(scrapes: Path) -> None:
    scrape = read(scrapes, "vllm_1.txt")
    dialect = recognise(scrape)
    assert dialect is not None
    fold = Fold(dialect)
    fold.take(scrape, 0.0)
    fold.take(scrape, 5.0)
    view = fold.view(URL)
    assert latency(view, "TTFT").window is None and latency(view, "TTFT").count == 500
    assert view.output_rate == 0.0 and view.hit_rate is None and view.hit_rate_before == 0.4


def test_sglang_figures_count_each_rank_once(scrapes: Path) -> None:
    view = watched(scrapes, "sglang")
    assert (view.running, view.waiting, view.kv_usage, view.preemptions) == (7.0, 0.0, 0.36, 1.0)
    assert view.hit_rate == pytest.approx(2250 / 10_000)  # both cache sources
    assert view.output_rate == 402.0 and view.request_rate == 4.0
    assert latency(view, "ITL").count == 3980


def test_sglang_with_the_newer_prefix_reads_the_same(scrapes: Path) -> None:
    text = (scrapes / "sglang_2.txt").read_text()
    assert parse(text.replace("sglang:", "sglang_")) == parse(text)


def test_llama_server_figures_without_histograms(scrapes: Path) -> None:
    view = watched(scrapes, "llama")
    assert (view.running, view.waiting) == (1.0, 0.0)
    assert view.hit_rate == pytest.approx(200 / 500) and view.hit_rate_before == pytest.approx(700 / 4000)
    assert view.kv_usage is None and view.preemptions is None
    assert view.missing == ("KV usage", "preemptions", "latency histograms")
    decode = latency(view, "decode")
    assert decode.mean == pytest.approx(10 / 400) and decode.percentiles == ()
    assert "not reported by this server: KV usage, preemptions" in plain(view)


def test_slots_of_both_releases(scrapes: Path) -> None:
    new = parse_slots((scrapes / "slots.json").read_bytes())
    assert [(s.slot, s.busy, s.num_used, s.num_cached, s.num_left) for s in new] == [
        (0, True, 140, 31, 24), (1, False, 0, 0, 0),
    ]  # fmt: skip
    assert usage_of(new) == 140 / 1024
    old = parse_slots((scrapes / "slots_old.json").read_bytes())
    assert [(s.slot, s.busy, s.num_decoded, s.num_left) for s in old] == [(0, False, 0, 0), (1, True, 3, 0)]
    assert usage_of(()) is None


# --- counters that start again, lines that cannot be read -------------------------------------------


@pytest.mark.parametrize("server", ["vllm", "sglang", "llama"])
def test_a_restart_begins_anew_and_gives_no_negative_figure(scrapes: Path, server: str) -> None:
    later, earlier = read(scrapes, f"{server}_2.txt"), read(scrapes, f"{server}_1.txt")
    dialect = recognise(later)
    assert dialect is not None
    fold = Fold(dialect)
    fold.take(later, 0.0)
    fold.take(earlier, 1.0)  # counters went back: the server was started again
    view = fold.view(URL)
    assert view.num_restarts == 1 and view.output_rate is None
    assert all(x.count >= 0 and x.window is None for x in view.latencies)
    fold.take(later, 11.0)
    again = fold.view(URL)
    assert again.output_rate is not None and again.output_rate > 0 and again.num_restarts == 1


def test_one_bad_line_costs_one_line(scrapes: Path) -> None:
    text = (scrapes / "vllm_1.txt").read_text()
    broken = text + 'vllm:num_requests_waiting{model_name="x 3.0\n<html>502</html>\n'
    scrape = parse(broken)
    assert scrape.unreadable == 2
    assert scrape.sums["vllm:num_requests_running"] == 8.0
    assert scrape.histograms == parse(text).histograms


def test_numbers_that_are_none_are_left_out(scrapes: Path) -> None:
    assert "llamacpp:predicted_tokens_seconds" not in read(scrapes, "llama_1.txt").sums
    assert read(scrapes, "llama_2.txt").sums["llamacpp:predicted_tokens_seconds"] == 40.0


def test_several_engines_add_up_and_the_fullest_cache_counts() -> None:
    lines = [
        'vllm:num_requests_running{engine="0"} 3', 'vllm:num_requests_running{engine="1"} 4',
        'vllm:kv_cache_usage_perc{engine="0"} 0.2', 'vllm:kv_cache_usage_perc{engine="1"} 0.9',
    ]  # fmt: skip
    scrape = parse("\n".join(lines) + "\n")
    dialect = recognise(scrape)
    assert dialect is not None
    fold = Fold(dialect)
    fold.take(scrape, 0.0)
    view = fold.view(URL)
    assert (view.running, view.kv_usage) == (7.0, 0.9)
    assert view.preemptions is None and "preemptions" in view.missing


def test_the_window_forgets(scrapes: Path) -> None:
    first, second = read(scrapes, "vllm_1.txt"), read(scrapes, "vllm_2.txt")
    dialect = recognise(first)
    assert dialect is not None
    fold = Fold(dialect, window=5.0)
    for at, scrape in ((0.0, first), (4.0, second), (8.0, second), (12.0, second), (16.0, second)):
        fold.take(scrape, at)
    assert fold.view(URL).output_rate == 0.0  # nothing happened in the last 5 seconds


# --- percentiles from buckets -----------------------------------------------------------------------


def test_quantiles_by_hand() -> None:
    histogram = Histogram((1.0, 2.0, 4.0, math.inf), (0.0, 10.0, 20.0, 25.0), 60.0)
    assert quantile(histogram, 40) == 2.0
    assert quantile(histogram, 60) == 3.0
    assert quantile(histogram, 99) == math.inf
    assert quantile(Histogram((1.0, math.inf), (0.0, 0.0), 0.0), 50) is None


def test_quantile_is_within_a_bucket_of_the_truth() -> None:
    values = [((i * 7919) % 1000) / 1000 for i in range(1000)]
    bounds = (0.1, 0.25, 0.5, 0.75, 1.0, math.inf)
    counts = tuple(float(sum(v <= bound for v in values)) for bound in bounds)
    histogram = Histogram(bounds, counts, sum(values))
    for q in (5, 50, 90, 99):
        truth = sorted(values)[q * 10 - 1]
        estimate = quantile(histogram, q)
        assert estimate is not None and abs(estimate - truth) < 0.005  # they do lie evenly


def test_gains_after_a_restart_are_everything_there_is() -> None:
    before = Histogram((1.0, math.inf), (5.0, 9.0), 12.0)
    now = Histogram((1.0, math.inf), (7.0, 12.0), 20.0)
    assert gained(now, before) == Histogram((1.0, math.inf), (2.0, 3.0), 8.0)
    assert gained(before, now) == before
    assert gained(now, None) == now
    assert gained(now, Histogram((2.0, math.inf), (0.0, 0.0), 0.0)) == now
