"""The lab of *The KV cache*: what a token costs with a cache and without, on the real model."""

from __future__ import annotations

import pytest
from lab_kit import cpu_clock, last, lines, record

from tutor.labs.kv_cache import CACHED, TWIN, positions
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.metrics.growth import growth, token_times
from tutor.trace.events import TokenTimed
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel

SETTINGS: dict[str, object] = {"max_tokens": 3, "far": 512, "samples": 3}


def quiet_run(model: Model) -> LabView:
    with cpu_clock("tutor.labs.kv_cache"):
        return last(record(model, "kv-cache", **SETTINGS))


@pytest.fixture(scope="module")
def view(model: Model) -> LabView:
    return quiet_run(model)


def grown(view: LabView, lane: str) -> float:
    ratio = growth(token_times(view.timed), lane)
    assert ratio is not None
    return ratio


def test_a_token_costs_ever_more_without_a_cache_and_hardly_more_with_one(
    model: Model, view: LabView
) -> None:
    """From 64 to 512 tokens: about 8 times without, 1.2 with, on 2 busy cores. Neighbours share caches and
    memory with us, so it has three tries.
    """

    def holds(view: LabView) -> bool:
        return grown(view, TWIN) > 2 and grown(view, CACHED) < 1.5

    assert holds(view) or any(holds(quiet_run(model)) for _ in range(2)), token_times(view.timed)


def test_each_length_is_timed_in_both_lanes_and_the_twin_runs_it_all(view: LabView) -> None:
    times = token_times(view.timed)
    assert [each.position for each in times] == [64, 64, 128, 128, 256, 256, 512, 512]
    assert {each.num_samples for each in times} == {3}
    assert {each.num_tokens for each in times if each.lane == CACHED} == {1}
    for position in (64, 128, 256, 512):
        ran = [each.num_tokens for each in view.timed if (each.lane, each.position) == (TWIN, position)]
        assert ran == [position - 2, position - 1, position]
    assert "Token 512 of a text against token 64" in view.note and "times without" in view.note


@pytest.mark.parametrize(
    ("far", "expected"),
    [(0, []), (10, [10]), (64, [64]), (65, [64, 65]), (700, [64, 128, 256, 512, 700])],
)  # fmt: skip
def test_lengths_double_up_to_the_knob(far: int, expected: list[int]) -> None:
    assert positions(far) == expected


def test_a_prompt_that_is_too_long_keeps_its_end(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step only: it has more tokens than one pass takes, so it also shows that a pass is cut."""
    monkeypatch.setattr("tutor.labs.kv_cache.N_CTX", 520)
    prompt = "one two three four " * 300 + "The capital of France is"
    cached, twin = last(record(model, "kv-cache", steps=1, prompt=prompt, max_tokens=2, far=0)).lanes
    assert cached.passes == twin.passes == (518,)
    reference = ReferenceModel(model)
    best = int(reference.next_logits(reference.tokenize(prompt)[-518:]).argmax())
    assert cached.text == twin.text == reference.piece(best).decode() != " one"


def test_an_empty_prompt_starts_from_one_token(model: Model) -> None:
    view = last(record(model, "kv-cache", prompt="", max_tokens=2, far=10, samples=1, edit_at=200))
    assert view.lanes[0].passes[:2] == (1, 1) and view.lanes[0].dropped == ((1, 1),)
    assert growth(token_times(view.timed), CACHED) is None


def test_growth_is_a_ratio_of_medians() -> None:
    seconds = {64: (1.0, 9.0, 2.0), 512: (4.0, 5.0, 6.0)}
    timed = [
        TokenTimed("a", mark, i, value) for mark, values in seconds.items() for i, value in enumerate(values)
    ]
    times = token_times(timed)
    assert [(each.position, each.num_samples, each.num_tokens, each.seconds) for each in times] == [
        (64, 3, 2, 2.0), (512, 3, 2, 5.0),
    ]  # fmt: skip
    assert growth(times, "a") == pytest.approx(2.5)
    assert growth(times, "b") is None and token_times(()) == ()


@pytest.mark.parametrize("width", [53, 58, 78, 118])
def test_the_growth_panel_puts_both_lanes_on_one_scale(view: LabView, width: int) -> None:
    shown = lines(make_panel("growth").picture(view, width))
    assert max(map(len, shown)) <= width
    bars = {lane: [line.count("█") for line in shown if f" {lane} " in line and "times" not in line]
            for lane in (CACHED, TWIN)}  # fmt: skip
    assert len(bars[CACHED]) == len(bars[TWIN]) == 4
    took = {lane: [each.seconds for each in token_times(view.timed) if each.lane == lane] for lane in bars}
    longest, full = max(map(max, took.values())), max(map(max, bars.values()))
    for lane in bars:
        assert bars[lane] == pytest.approx([full * each / longest for each in took[lane]], abs=1)
    assert any(f"token 512 against 64: {TWIN}" in line for line in shown)
