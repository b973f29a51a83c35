"""The attention lab on the real model: rows sum to 1 and respect the mask, the new token runs alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
from lab_kit import at, last, record, text

from tutor.labs.registry import get_kind
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.attention import position_story
from tutor.ui.widgets.panels.base import line_width

Run = Callable[..., TraceStore]


@pytest.fixture(scope="module")
def run(model: Model) -> Run:
    """Runs the lab to its end, once for each set of knobs."""
    return cache(partial(record, model, "attention"))


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (13, 8), (29, 4)])
def test_rows_sum_to_1_and_respect_the_mask(run: Run, layer: int, head: int) -> None:
    rows = last(run(layer=layer, head=head)).attention
    assert [row.position for row in rows] == list(range(11))
    for row in rows:
        weights = np.array(row.weights)
        assert weights.shape == (9, max(10, row.position + 1)) and (row.layer, row.head) == (layer, head)
        assert weights.sum(axis=1) == pytest.approx(1.0, abs=1e-4)
        assert (weights[:, row.position + 1 :] == 0.0).all(), "a later token was read"
        assert (weights >= 0.0).all()


def test_the_new_token_needs_one_row_of_q(run: Run) -> None:
    rows = last(run()).attention
    assert [row.num_queries for row in rows] == [10] * 10 + [1]
    assert len(rows[-1].weights[0]) == 11, "and all keys, its own included"


def test_the_new_token_reads_the_same_alone_as_in_one_pass(run: Run) -> None:
    """What a KV cache rests on: the row of a token that ran alone is the row of a whole pass."""
    view = last(run())
    ids = view.tokens[-1].token_ids
    with ReferenceModel.load() as model:
        whole = model.capture(ids, ["kq_soft_max-13"])["kq_soft_max-13"][-1][0, :, -1, : len(ids)]
    assert np.abs(np.array(view.attention[-1].weights) - whole).max() < 0.02


def test_tired_reads_the_cat(run: Run) -> None:
    row = last(run()).attention[9]
    assert int(np.argmax(row.weights[8])) == 1 and row.weights[8][1] > 0.5


def test_another_head_is_another_map(run: Run) -> None:
    previous = last(run(layer=16, head=0)).attention
    assert np.mean([row.weights[0][row.position - 1] for row in previous[1:10]]) > 0.6


def test_long_texts_are_cut_aloud_and_knobs_beyond_the_model_take_the_last(run: Run) -> None:
    store = run(text="one two three " * 40, layer=200, head=200)
    assert "first 40 of" in at(store, 1).note
    row = last(store).attention[-1]
    assert (row.layer, row.head, row.position) == (29, 8, 40)


def test_without_text_it_says_what_to_do(run: Run) -> None:
    assert "Press k" in last(run(text="")).note


def test_the_map_leaves_masked_places_empty_and_marks_a_leak(run: Run) -> None:
    store = run()
    panel = make_panel("attention")
    shown = text(panel.picture(at(store, 4), 80))
    assert " 2 ␣sat" in shown and " 3 " in shown.splitlines()[0]
    assert "layer 13, head 8, KV head 2" in shown and "!" not in shown
    leaking = at(store, 4)
    row = leaking.attention[0]
    wrong = type(row)(row.layer, row.head, 3, 0, 10, tuple((0.5, 0.5) for _ in range(9)))
    assert "!" in text(panel.picture(_with(leaking, wrong), 80))


@pytest.mark.parametrize("name", ["attention", "reads"])
def test_the_screen_says_how_it_was_measured(run: Run, name: str) -> None:
    """Not with the context of the other labs: flash attention never has the weights as a tensor."""
    assert "f16, without flash attention" in text(make_panel(name).picture(last(run()), 58))
    assert "f16, without flash attention" in get_kind("attention").plain(last(run()))


def _with(view: LabView, row: object) -> LabView:
    import msgspec

    return msgspec.structs.replace(view, attention=(row,))


def test_reads_are_counted_and_heads_are_grouped(run: Run) -> None:
    view = last(run())
    reads = text(make_panel("reads").picture(view, 60))
    assert "ran alone: 1 new q, k and v" in reads and "10 k, 10 v, 0 q" in reads
    assert "100.0%   later tokens 0.0%" in reads
    heads = text(make_panel("heads").picture(view, 60)).splitlines()
    assert [line[:4] for line in heads[:9:3]] == ["KV 0", "KV 1", "KV 2"]
    assert all(f"head {head}" in heads[head] for head in range(9))


@pytest.mark.parametrize("name", ["attention", "reads", "heads"])
@pytest.mark.parametrize("width", [40, 53, 78, 120])
def test_panels_keep_their_width(run: Run, name: str, width: int) -> None:
    for store in (run(), run(text="one two three " * 40, layer=200, head=200)):
        for view in (at(store, 0), at(store, 2), last(store)):
            picture = make_panel(name).picture(view, width)
            assert max((line_width(line) for line in picture.lines), default=0) <= width


def test_the_inspector_tells_who_reads_a_token(run: Run) -> None:
    title, lines = position_story(last(run()), "1")
    assert title == "Token 1 ␣cat"
    assert any("by  9 ␣tired" in line and "72." in line for line in lines)
    assert position_story(last(run()), "10")[1][-1].strip() == "none has come yet."
