"""The lab of *KV cache size math*: caches of three types fill token by token, beside llama.cpp's figures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from lab_kit import last, lines, record

from tutor.curriculum.formulas import kv_bytes
from tutor.llama.model import Model
from tutor.trace.events import CacheFilled
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView
from tutor.ui.widgets.panels import make_panel

TYPES = ("f16", "q8_0", "q4_0")
POSITION_BYTES = 12  # what a saved sequence holds a token beside K and V


@pytest.fixture(scope="module")
def store(model: Model) -> TraceStore:
    return record(model, "kv-math", n_ctx=300, fill=12)


@pytest.fixture(scope="module")
def view(store: TraceStore) -> LabView:
    return last(store)


def filled(store: TraceStore, kv_type: str) -> list[CacheFilled]:
    events = [record.event for record in store.records]
    return [event for event in events if isinstance(event, CacheFilled) and event.kv_type == kv_type]


@pytest.mark.parametrize("kv_type", TYPES)
def test_each_token_adds_what_the_formula_says_to_llama_cpps_own_state(
    store: TraceStore, kv_type: str
) -> None:
    steps = filled(store, kv_type)
    assert [each.num_tokens for each in steps] == list(range(1, 13))
    a_token = kv_bytes("smollm2-135m", 1, type_k=kv_type, type_v=kv_type)
    assert [each.formula_bytes for each in steps] == [n * a_token for n in range(1, 13)]
    sizes = [each.state_bytes for each in steps]
    assert {after - before for before, after in pairwise(sizes)} == {a_token + POSITION_BYTES}


def test_all_memory_is_taken_before_the_first_token(store: TraceStore) -> None:
    for kv_type in TYPES:
        steps = filled(store, kv_type)
        assert {each.num_cells for each in steps} == {512}
        assert len({each.buffer_bytes for each in steps}) == 1
        whole = kv_bytes("smollm2-135m", 512, type_k=kv_type, type_v=kv_type)
        assert abs(steps[0].buffer_bytes - whole) < 0.006 * 2**20


def test_four_bits_save_less_than_four_times(view: LabView) -> None:
    f16, q8, q4 = (each.formula_bytes for each in view.fillings)
    assert 1.8 < f16 / q8 < 2 and 3.5 < f16 / q4 < 4


def test_nothing_is_filled_when_the_knob_says_so_and_never_more_than_fits(model: Model) -> None:
    assert last(record(model, "kv-math", n_ctx=256, fill=0)).fillings == ()
    small = last(record(model, "kv-math", n_ctx=5, fill=512)).fillings
    assert {each.num_tokens for each in small} == {5} and {each.num_cells for each in small} == {256}


@pytest.mark.parametrize("width", [53, 58, 78, 118])
def test_the_panel_shows_what_is_used_of_what_was_allocated(view: LabView, width: int) -> None:
    shown = lines(make_panel("filling").picture(view, width))
    assert max(map(len, shown)) <= width
    bars = [line for line in shown if " MiB " in line]
    assert len(bars) == 3 and all("░" in line for line in bars)
    lengths = [line.count("░") for line in bars]
    assert lengths[0] > lengths[1] > lengths[2] and lengths[0] > 3 * lengths[2]
    assert "23,040 bytes a token" in shown[0]
