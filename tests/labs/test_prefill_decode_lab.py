"""The lab of *Prefill vs decode*: one real request pass by pass, and the phenomenon that it teaches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from lab_kit import cpu_clock, last, lines, record

from tutor.labs.registry import get_kind
from tutor.llama.model import Model
from tutor.metrics.phases import phase_totals
from tutor.trace.events import PassRun
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel

SETTINGS: dict[str, object] = {"prompt_tokens": 256, "output_tokens": 12, "n_batch": 32, "threads": 1}
LONG, SHORT, ROWS = "P 256, N 12", "P 64, N 12", "P 64, a row a pass"


def run(model: Model, **given: object) -> LabView:
    view = last(record(model, "prefill-decode", **given))
    assert "tokens/s" in get_kind("prefill-decode").plain(view)
    return view


@pytest.fixture(scope="module")
def view(model: Model) -> LabView:
    return quiet_run(model)


def quiet_run(model: Model) -> LabView:
    with cpu_clock("tutor.labs.prefill_decode"):
        return run(model, **SETTINGS)


def passes(view: LabView, run: str, phase: str) -> list[PassRun]:
    return [each for each in view.passes if (each.run, each.phase) == (run, phase)]


def per_token(view: LabView, run: str, phase: str) -> float:
    """CPU seconds a token."""
    total = next(total for total in phase_totals(view.passes) if (total.run, total.phase) == (run, phase))
    return total.duration / total.num_tokens


def shown(model: Model, view: LabView, phenomenon: Callable[[LabView], bool]) -> bool:
    """Whether the lab shows it. Neighbours share caches and memory all the same, so it has three tries."""
    return phenomenon(view) or any(phenomenon(quiet_run(model)) for _ in range(2))


def test_prefill_runs_many_rows_a_pass_and_decode_one(view: LabView) -> None:
    assert [each.num_tokens for each in passes(view, LONG, "prefill")] == [32] * 8
    assert [each.num_outputs for each in passes(view, LONG, "prefill")] == [0] * 7 + [1]
    decode = passes(view, LONG, "decode")
    assert [(each.num_tokens, each.num_outputs) for each in decode] == [(1, 1)] * 11
    assert [each.num_tokens for each in passes(view, ROWS, "prefill")] == [1] * 64


def test_a_pass_starts_when_the_one_before_it_ended(view: LabView) -> None:
    """So TTFT, TPOT and the timeline do not hold the pauses of a lab that is watched step by step."""
    for run in (LONG, SHORT, ROWS):
        mine = [each for each in view.passes if each.run == run]
        assert mine[0].start == 0.0
        for before, after in pairwise(mine):
            assert after.start == pytest.approx(before.start + before.duration, rel=1e-9)


def test_a_token_costs_less_in_prefill_than_in_decode(model: Model, view: LabView) -> None:
    """2.2 to 2.3 times on 2 busy cores."""

    def holds(view: LabView) -> bool:
        return per_token(view, LONG, "decode") > 1.3 * per_token(view, LONG, "prefill")

    assert shown(model, view, holds)


def test_ttft_grows_with_the_prompt_and_a_decode_step_hardly_does(model: Model, view: LabView) -> None:
    def holds(view: LabView) -> bool:
        ttft = [per_token(view, run, "prefill") * size for run, size in ((LONG, 256), (SHORT, 64))]
        step = [per_token(view, run, "decode") for run in (LONG, SHORT)]
        return ttft[0] > 2.5 * ttft[1] and step[0] < 1.6 * step[1]

    assert shown(model, view, holds)


def test_row_by_row_a_prompt_takes_longer(model: Model, view: LabView) -> None:
    def holds(view: LabView) -> bool:
        return per_token(view, ROWS, "prefill") > 1.2 * per_token(view, SHORT, "prefill")

    assert shown(model, view, holds)


def test_asking_for_all_logits_asks_for_many_rows(model: Model) -> None:
    view = run(model, prompt_tokens=40, output_tokens=2, n_batch=16, threads=1, all_logits=True)
    assert [each.num_outputs for each in passes(view, "P 40, N 2", "prefill")] == [16, 16, 8]


def test_totals_add_up_passes() -> None:
    made = (
        PassRun("a", "prefill", 30, 0, 0.0, 0.2), PassRun("a", "prefill", 20, 1, 0.2, 0.3),
        PassRun("a", "decode", 1, 1, 0.5, 0.02), PassRun("b", "prefill", 8, 1, 0.0, 0.0),
    )  # fmt: skip
    first, second, third = phase_totals(made)
    assert (first.num_tokens, first.num_passes, first.num_outputs) == (50, 2, 1)
    assert first.tokens_per_second == pytest.approx(100) and second.tokens_per_second == pytest.approx(50)
    assert third.tokens_per_second == 0.0


@pytest.mark.parametrize("width", [53, 58, 78, 118])
def test_the_panels_show_the_waits_and_keep_their_width(view: LabView, width: int) -> None:
    for name in get_kind("prefill-decode").panels:
        shown = lines(make_panel(name).picture(view, width))
        assert max(map(len, shown)) <= width
        if name == "phases":
            assert any("TTFT" in line for line in shown) and any(" 256 " in line for line in shown)
        else:
            lane = shown[shown.index(LONG[:width]) + 1]
            assert lane.count("│") <= 11 and lane[0] == "█" and "▓" in lane and "│" in lane
