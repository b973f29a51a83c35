"""The forward lab on the real model: the answer comes last, norms grow, a block only adds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from lab_kit import last, record

from tutor.labs.child import make_producer
from tutor.labs.registry import get_kind
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.llama.sampler import softmax
from tutor.trace.views import LabView

ITALY = "The capital of Italy is"
Run = Callable[..., LabView]


@pytest.fixture(scope="module")
def run(model: Model) -> Run:
    """The view at the end of a run, once for each set of knobs."""

    @cache
    def make(**given: object) -> LabView:
        return last(record(model, "forward", **given))

    return make


@pytest.mark.parametrize("given", [{}, {"prompt": ITALY}])
def test_the_answer_takes_the_lead_in_the_last_blocks_only(run: Run, given: dict[str, object]) -> None:
    view = run(**given)
    leads = [layer.layer for layer in view.layers if layer.texts[0] == " Rome"]
    assert [layer.layer for layer in view.layers] == list(range(30))
    assert leads and leads[-1] == 29 and min(leads) >= 27, leads
    assert view.logits[-1].texts[0] == " Rome"


def test_after_the_last_block_the_lens_is_the_model(run: Run) -> None:
    """The lens of block 29 in float32 against the logits of the same pass: only rounding lies between."""
    view = run()
    lens, model = view.layers[-1], view.logits[-1]
    assert lens.texts[:3] == model.texts[:3]
    assert np.abs(np.subtract(lens.probabilities, model.probabilities[:3])).max() < 0.02


def test_the_norm_of_the_state_grows_on_the_way(run: Run) -> None:
    norms = [layer.norm for layer in run().layers]
    assert norms[28] > 10 * norms[0]
    grown = sum(b > a for a, b in itertools.pairwise(norms))
    assert grown >= 24 and norms[9] < norms[19] < norms[28]


@pytest.mark.parametrize("layer", [7, 29])
def test_the_same_operations_come_back_in_every_block(run: Run, layer: int) -> None:
    first = [(t.name.removesuffix("-0"), t.role, t.shape) for t in run().tensors]
    other = [(t.name.removesuffix(f"-{layer}"), t.role, t.shape) for t in run(layer=layer).tensors]
    assert other == first and len(first) >= 15
    shapes = {name: shape for name, _, shape in first}
    assert shapes["ffn_gate"] == shapes["ffn_up"] == (12, 1536), "it widens"
    assert shapes["ffn_out"] == shapes["attn_out"] == shapes["l_out"] == (12, 576), "and comes back"


def test_a_middle_block_may_go_but_the_last_one_writes_the_answer(run: Run) -> None:
    middle, last = run(remove="swiglu", layer=15), run(remove="swiglu", layer=29)
    assert middle.logits[-1].texts[0] == " Rome" and last.logits[-1].texts[0] != " Rome"
    assert middle.note.startswith("Without the SwiGLU of block 15: ' Rome'")
    assert last.note.endswith("The whole model: ' Rome' with 73%.")


@pytest.mark.parametrize(("remove", "node"), [("attention", "ffn_inp"), ("swiglu", "l_out")])
def test_what_is_taken_out_adds_nothing(model: Model, remove: str, node: str) -> None:
    """The residual after the missing half is the state before it, bit for bit."""
    kind = get_kind("forward")
    producer = make_producer(kind, model, kind.settings({"layer": 3, "remove": remove}), lambda record: None)
    ids = producer.model.tokenize(ITALY)
    seen = producer._pass(ids, 3, remove)
    before = seen["l_out-2" if remove == "attention" else "ffn_inp-3"][-1]
    assert np.array_equal(seen[f"{node}-3"][-1], before)
    whole = producer._pass(ids, 3, "nothing")
    assert np.array_equal(whole["l_out-2"][-1], seen["l_out-2"][-1]), "earlier blocks are as they were"
    assert not np.array_equal(whole[f"{node}-3"][-1], seen[f"{node}-3"][-1])


def test_the_next_token_is_that_of_a_plain_pass(run: Run, model: Model) -> None:
    """Against the exact mode, which is another kernel: the same leader, nearly the same share."""
    reference = ReferenceModel(model)
    probs = softmax(reference.next_logits(reference.tokenize(ITALY)))
    shown = run(prompt=ITALY).logits[-1]
    assert shown.token_ids[0] == int(probs.argmax())
    assert shown.probabilities[0] == pytest.approx(float(probs.max()), abs=0.05)


def test_without_a_prompt_it_says_what_to_do_and_long_ones_are_cut_aloud(run: Run) -> None:
    assert "Press k" in run(prompt="").note
    assert len(run(prompt="word " * 300, layer=200).tokens[-1].token_ids) == 200
