"""The sampling lab on the real model: what each stage keeps, entropy by temperature, draws, loops, seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from lab_kit import last, lines, record

from tutor.labs.registry import get_kind
from tutor.labs.sampling import loop_length, shape
from tutor.labs.scenario import KnobError
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.serving.sampling import SamplingParams
from tutor.trace.events import DistributionShaped
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.base import line_width

FRANCE = "The capital of France is"
Run = Callable[..., LabView]


@pytest.fixture(scope="module")
def run(model: Model) -> Run:
    """The view at the end of a run, once for each set of knobs."""

    @cache
    def make(**given: object) -> LabView:
        return last(record(model, "sampling", **{"max_tokens": 2, "streams": 1, **given}))

    return make


@pytest.fixture(scope="module")
def row(model: Model) -> np.ndarray:
    reference = ReferenceModel(model)
    return np.array(reference.next_logits(reference.tokenize(FRANCE)))


def stage(view: LabView, name: str) -> DistributionShaped:
    return next(shaped for shaped in view.shapes if shaped.stage == name)


def texts(view: LabView) -> dict[str, str]:
    found: dict[str, str] = {}
    for grown in view.streams:
        found[grown.stream] = found.get(grown.stream, "") + grown.text
    return found


@pytest.mark.parametrize("p", [0.3, 0.5, 0.8, 0.9, 0.97])
def test_top_p_keeps_the_smallest_sufficient_set(run: Run, row: np.ndarray, p: float) -> None:
    shaped = stage(run(prompt=FRANCE, top_p=p), "top-p")
    powers = np.sort(np.exp(row.astype(np.float64) - row.max()))[::-1]
    probs = powers / powers.sum()
    held = probs[: shaped.num_left].sum()
    assert held >= p > held - probs[shaped.num_left - 1], "sufficient, and not without its last token"
    assert shaped.kept == pytest.approx(held, rel=1e-6)


def test_temperature_reshapes_entropy_monotonically(run: Run) -> None:
    values = (0.0, 0.3, 0.7, 1.0, 1.5, 2.5)
    last = [run(prompt=FRANCE, temperature=t, top_p=1.0).shapes[-1] for t in values]
    entropies = [shaped.entropy for shaped in last]
    assert all(b > a + 0.005 for a, b in itertools.pairwise(entropies)), entropies
    assert entropies[0] == 0.0 and last[0].num_left == 1
    assert all(b.top < a.top for a, b in itertools.pairwise(last))
    orders = [np.argsort(-np.array(shaped.probabilities), kind="stable").tolist() for shaped in last[1:]]
    assert all(order == list(range(12)) for order in orders), "the order of the tokens never changes"


def test_a_hot_temperature_first_lets_the_tail_in(run: Run) -> None:
    last = run(prompt=FRANCE, temperature=2.0).shapes[-1]
    first = run(prompt=FRANCE, temperature=2.0, order="first").shapes[-1]
    assert last.num_left < 20 and first.num_left > 5000 and first.entropy > last.entropy + 5


def test_stages_run_in_the_order_that_the_knob_says(run: Run) -> None:
    filters = ["top-k", "top-p", "min-p"]
    assert [s.stage for s in run(prompt=FRANCE).shapes] == ["model", "penalty", *filters, "temperature"]
    first = run(prompt=FRANCE, temperature=2.0, order="first")
    assert [s.stage for s in first.shapes] == ["model", "penalty", "temperature", *filters]


def test_top_k_min_p_and_penalty_do_what_they_say(run: Run, row: np.ndarray, model: Model) -> None:
    assert stage(run(prompt=FRANCE, top_k=7, top_p=1.0), "top-k").num_left == 7
    probs = np.exp(row.astype(np.float64) - row.max())
    assert stage(run(prompt=FRANCE, min_p=0.02, top_p=1.0), "min-p").num_left == int((probs >= 0.02).sum())
    history = ReferenceModel(model).tokenize(FRANCE)
    plain, punished = shape(row, SamplingParams(repetition_penalty=1.5, penalty_last_n=-1), history, False)[
        :2
    ]
    seen = np.unique(history)
    assert (punished.probs[seen] < plain.probs[seen]).all()


def test_draws_follow_the_distribution_and_never_give_a_dropped_token(run: Run) -> None:
    view = run(prompt=FRANCE)
    shaped, draws = view.shapes[-1], view.draws
    assert draws is not None and sum(draws.counts) == draws.num_draws == 200
    for p, count in zip(shaped.probabilities, draws.counts, strict=True):
        assert count == 0 if p == 0 else abs(count - 200 * p) <= 5 * np.sqrt(200 * p * (1 - p)) + 1


def test_greedy_loops_drawn_texts_do_not_and_a_penalty_breaks_the_loop(run: Run) -> None:
    view = run(max_tokens=32, streams=2)
    assert "greedy (9 tokens)" in view.note and "seed" not in view.note
    ends = {grown.stream: grown for grown in view.streams}
    assert ends["greedy"].repeats == 9 and ends["seed 1"].repeats == 0
    assert all(grown.rank == 1 for grown in view.streams if grown.stream == "greedy")
    assert run(max_tokens=32, streams=2, penalty=1.2).note == "No text ends in a loop."


def test_a_seed_repeats_a_text_whatever_runs_beside_it(run: Run) -> None:
    two, four = (texts(run(max_tokens=12, streams=n)) for n in (2, 4))
    assert len(four) == 5 and len(set(four.values())) == 5
    assert {name: four[name] for name in two} == two
    assert texts(run(max_tokens=12, streams=1, seed=2))["seed 2"] == two["seed 2"]


@pytest.mark.parametrize(
    ("ids", "length"),
    [([], 0), ([5], 0), ([5, 5], 1), ([1, 2, 3, 2, 3], 2), ([1, 2, 3], 0), ([1, 2, 1, 3], 0)],
)
def test_loop_length(ids: list[int], length: int) -> None:
    assert loop_length(ids) == length


def test_temperature_zero_first_leaves_one_token(run: Run) -> None:
    view = run(prompt=FRANCE, temperature=0, order="first")
    assert view.shapes[-1].num_left == 1 and len(set(texts(view).values())) == 1


def test_without_a_prompt_it_says_what_to_do_and_long_ones_are_cut_aloud(run: Run) -> None:
    assert "Press k" in run(prompt="").note
    assert run(prompt="word " * 300, max_tokens=1).streams


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"temperature": "hot"}, "is a number, such as 1.0"),
        ({"temperature": "nan"}, "goes from 0 to 5"),
        ({"top_p": "0"}, "goes from 0.01 to 1"),
        ({"min_p": "1,5"}, "is a number"),
    ],
)
def test_fractions_are_checked(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(KnobError, match=sentence):
        get_kind("sampling").settings(given)


@pytest.mark.parametrize("width", [40, 53, 78, 120])
def test_panels_show_the_stage_and_keep_their_width(run: Run, width: int) -> None:
    view = run(max_tokens=32, streams=2)
    shown = {}
    for name in ("distribution", "stages", "streams"):
        picture = make_panel(name).picture(view, width)
        assert max(line_width(line) for line in picture.lines) <= width, name
        shown[name] = "\n".join(lines(picture))
    assert "␣saw" in shown["distribution"] and "more" in shown["distribution"]
    assert "top-p 0.9" in shown["stages"]
    assert "greedy" in shown["streams"] and (width < 53 or "loops: 9 tokens" in shown["streams"])
