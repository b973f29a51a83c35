"""Older and newer names, several engines, broken pages: what each costs, by made-up scrapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutor.client.attach.dialects import recognise
from tutor.client.attach.fold import Fold
from tutor.client.attach.plain import plain, rate
from tutor.client.attach.scrape import parse
from tutor.client.attach.views import EngineView, ServerView

URL = "http://127.0.0.1:8000"


def seen(*texts: str, seconds: float = 10.0) -> ServerView:
    """The view after these pages of /metrics, `seconds` apart."""
    dialect = recognise(parse(texts[0]))
    assert dialect is not None
    fold = Fold(dialect)
    for index, text in enumerate(texts):
        fold.take(parse(text), index * seconds)
    return fold.view(URL)


def latency_names(view: ServerView) -> list[str]:
    return [latency.name for latency in view.latencies]


def test_data_parallel_engines_of_vllm_are_added_up_and_shown_apart(scrapes: Path) -> None:
    view = seen(*((scrapes / f"vllm_dp_{n}.txt").read_text() for n in (1, 2)))
    assert (view.running, view.waiting, view.kv_usage) == (
        15.0,
        6.0,
        0.97,
    )  # the fullest cache preempts first
    assert view.engines == (
        EngineView("engine 0", 12.0, 6.0, 0.97),
        EngineView("engine 1", 3.0, 0.0, 0.25),
    )
    assert (view.output_rate, view.preemption_rate, view.hit_rate) == (150.0, 0.2, 0.4)
    assert view.acceptance == pytest.approx(300 / 500)
    assert view.latencies[0].count == 9 and view.model == "example-org/Example-8B-Instruct"
    said = plain(view)
    assert "engine 1: 3 running, 0 waiting, KV cache 25%" in said
    assert "KV cache: 97% in use of the fullest engine" in said and "hit in the last 10 s" in said


def test_names_of_vllm_before_v1(scrapes: Path) -> None:
    view = seen((scrapes / "vllm_old.txt").read_text())
    assert (view.running, view.waiting, view.kv_usage, view.preemptions) == (5.0, 1.0, 0.5, 3.0)
    assert (view.hit_rate_before, view.acceptance) == (0.25, 0.7)
    assert latency_names(view) == ["TTFT", "ITL", "queue"]
    assert view.engines == () and view.missing == ()


def test_sglang_ranks_and_priorities_count_once(scrapes: Path) -> None:
    text = (scrapes / "sglang_dp.txt").read_text()
    view = seen(text)
    assert (view.running, view.waiting, view.kv_usage, view.preemptions) == (9.0, 2.0, 0.8, 5.0)
    assert view.engines == (
        EngineView("dp rank 0", 6.0, 2.0, 0.55),
        EngineView("dp rank 1", 3.0, 0.0, 0.8),
    )
    assert view.hit_rate_before == 0.2  # from the counters: the gauge is 0 whenever nothing is prefilled
    assert view.acceptance == 0.6
    assert seen(text.replace("sglang:", "sglang_")) == view


def test_of_several_ranks_the_lowest_counts() -> None:
    rows = [
        f'sglang:num_running_reqs{{tp_rank="{rank}"}} {value}' for rank, value in ((10, 7), (2, 4), (9, 6))
    ]
    assert seen("\n".join(rows) + "\n").running == 4.0


def test_no_drafts_is_no_acceptance_of_zero(scrapes: Path) -> None:
    text = (scrapes / "sglang_dp.txt").read_text().replace("} 0.6\n", "} 0.0\n")
    assert seen(text).acceptance is None


def test_sglang_without_the_older_usage_gauge(scrapes: Path) -> None:
    text = (scrapes / "sglang_dp.txt").read_text().replace("sglang:token_usage", "sglang:other_usage")
    assert seen(text).kv_usage == 0.8


def test_two_models_behind_one_address() -> None:
    rows = [
        f'vllm:num_requests_running{{model_name="org/{model}"}} {value}'
        for model, value in (("small", 2), ("large", 5))
    ]
    view = seen("\n".join(rows) + "\n")
    assert view.model == "2 models" and view.running == 7.0
    assert [(engine.name, engine.running) for engine in view.engines] == [("large", 5.0), ("small", 2.0)]


def test_ten_engines_stand_in_the_order_of_their_numbers() -> None:
    rows = [f'vllm:num_requests_running{{engine="{n}",model_name="m"}} 1' for n in (10, 9, 2, 0)]
    names = [engine.name for engine in seen("\n".join(rows) + "\n").engines]
    assert names == ["engine 0", "engine 2", "engine 9", "engine 10"]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_gauge_that_is_no_number_is_unknown(scrapes: Path, value: str) -> None:
    lines = (scrapes / "vllm_old.txt").read_text().splitlines()
    name = "vllm:gpu_cache_usage_perc{"
    text = "".join(f"{line[:-3]}{value}\n" if line.startswith(name) else f"{line}\n" for line in lines)
    view = seen(text)
    assert view.kv_usage is None and "KV usage" in view.missing and "KV cache: unknown" in plain(view)


def test_a_page_that_ends_within_a_line_is_cut(scrapes: Path) -> None:
    text = (scrapes / "vllm_1.txt").read_text()
    assert not parse(text).cut
    line = next(line for line in text.splitlines() if line.startswith("vllm:generation_tokens_total"))
    half = text[: text.index(line) + len(line) - 4]  # 31500.0 reads as 315
    scrape = parse(half)
    assert scrape.cut and "vllm:generation_tokens_total" not in scrape.sums


def test_a_histogram_without_its_last_bucket_is_none(scrapes: Path) -> None:
    lines = (scrapes / "vllm_1.txt").read_text().splitlines()
    kept = [line for line in lines if not ("time_to_first_token" in line and "+Inf" in line)]
    assert "TTFT" not in latency_names(seen("\n".join(kept) + "\n"))


def test_rates_keep_three_digits() -> None:
    said = [rate(value) for value in (None, 0.0, 0.25, 9.999, 12.34, 99.96, 5007.0)]
    assert said == ["unknown", "0", "0.25", "10.0", "12.3", "100", "5,007"]
