"""Decoding: what is refused before the call, what comes back, and that exact mode is exact."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tutor.llama import kv, library
from tutor.llama.batch import Batch
from tutor.llama.context import CELL_LOG, Context, ContextConfig
from tutor.llama.errors import BadBatch, DecodeAborted, EngineFailed, EngineMisuse, NoSpace
from tutor.llama.model import Model

TEXT = "Each token keeps one key and one value in every layer of the model, and a page is a block of memory."


@pytest.fixture(scope="module")
def contexts(model: Model) -> Iterator[dict[str, Context]]:
    made = {
        "exact": Context(model, ContextConfig(n_ctx=768, n_seq_max=3, n_batch=64)),
        "shared": Context(model, ContextConfig("shared", n_ctx=256, n_seq_max=3)),
    }
    yield made
    for context in made.values():
        context.close()


@pytest.fixture
def exact(contexts: dict[str, Context]) -> Context:
    kv.clear(contexts["exact"])
    return contexts["exact"]


@pytest.fixture
def shared(contexts: dict[str, Context]) -> Context:
    kv.clear(contexts["shared"])
    return contexts["shared"]


def fill(context: Context, count: int, slot: int = 0, first: int = 0) -> Batch:
    """Decode `count` tokens into a slot; the last asks for logits."""
    batch = Batch(max(count, 1))
    batch.add_run([10 + i % 50 for i in range(count)], first, slot, True)
    context.decode(batch)
    return batch


def test_sizes(contexts: dict[str, Context]) -> None:
    exact, shared = contexts["exact"], contexts["shared"]
    assert (exact.n_ctx, exact.n_ctx_seq, exact.n_seq_max, exact.n_batch) == (768, 256, 3, 64)
    assert (shared.n_ctx, shared.n_ctx_seq, shared.unified) == (256, 256, True)


def test_logits_rows_and_argmax_agree_with_the_c_library(exact: Context) -> None:
    batch = Batch(20)
    for slot in (2, 0):
        for pos in range(4):
            batch.add(100 + pos, pos, (slot,), pos != 1)
    exact.decode(batch)
    assert batch.wanted == [0, 2, 3, 4, 6, 7]
    assert exact.rows().shape == (6, 49152)
    for row, index in enumerate(batch.wanted):
        pointer = exact.lib.llama_get_logits_ith(exact.pointer, index)
        truth = np.ctypeslib.as_array(pointer, shape=(49152,))
        assert np.array_equal(exact.logits(index), truth)
        assert np.array_equal(exact.rows()[row], truth)
        assert exact.argmax(index) == int(truth.argmax())
    kept = exact.logits(7)
    kept[:] = 0.0
    assert exact.logits(7).any()


def test_logits_that_were_not_asked_for(exact: Context) -> None:
    fill(exact, 3)
    for index in (0, 1, 5, -1):
        with pytest.raises(EngineMisuse, match="did not ask for logits"):
            exact.logits(index)
    batch = Batch(1)
    batch.add(5, 3, (0,), False)
    exact.decode(batch)
    with pytest.raises(EngineMisuse, match="asked for no logits"):
        exact.rows()
    with pytest.raises(EngineMisuse, match="did not ask"):
        exact.argmax(0)


def test_a_refused_batch_leaves_the_last_logits(exact: Context) -> None:
    fill(exact, 3)
    before = exact.logits(2)
    with pytest.raises(BadBatch):
        exact.decode(Batch(4))
    assert np.array_equal(exact.logits(2), before)


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ([], BadBatch, "empty"),
        ([(5, 1, (0,))], BadBatch, "is empty, so its next position is 0, not 1"),
        ([(5, 0, (3,))], EngineMisuse, "There is no slot 3"),
        ([(5, 0, (-1,))], EngineMisuse, "There is no slot -1"),
        ([(5, 0, (0, 1))], EngineMisuse, "needs shared cells"),
        ([(49152, 0, (0,))], BadBatch, "does not have"),
        ([(-1, 0, (0,))], BadBatch, "does not have"),
        ([(5, pos, (0,)) for pos in range(65)], EngineMisuse, "takes 64 at once"),
    ],
)
def test_what_would_end_the_process_is_refused(
    exact: Context, entries: list[Any], error: type[Exception], words: str
) -> None:
    batch = Batch(100)
    for token, pos, slots in entries:
        batch.add(token, pos, slots, True)
    with pytest.raises(error, match=words):
        exact.decode(batch)
    assert [exact.pos_max(slot) for slot in range(3)] == [-1, -1, -1]


@pytest.mark.parametrize("first", [1, 3, 6])
def test_positions_continue_where_the_slot_ends(exact: Context, first: int) -> None:
    fill(exact, 5)
    batch = Batch(4)
    batch.add(5, first, (0,), True)
    with pytest.raises(BadBatch, match="holds positions up to 4, so its next position is 5"):
        exact.decode(batch)


def test_no_space_leaves_the_cache_unchanged(shared: Context) -> None:
    fill(shared, 200)
    before = kv.save(shared, 0)
    with pytest.raises(NoSpace, match="no free KV cells for 100 tokens"):
        fill(shared, 100, slot=1)
    assert (shared.pos_max(0), shared.pos_max(1)) == (199, -1)
    assert kv.save(shared, 0) == before
    with pytest.raises(EngineMisuse, match="did not ask"):
        shared.argmax(99)
    kv.seq_rm(shared, 0, 150)
    fill(shared, 100, slot=1)
    assert (shared.pos_max(0), shared.pos_max(1)) == (149, 99)


def test_one_token_of_several_slots_in_a_shared_context(shared: Context) -> None:
    batch = Batch(3)
    for pos in range(3):
        batch.add(50 + pos, pos, (0, 1, 2), pos == 2)
    shared.decode(batch)
    assert [shared.pos_max(slot) for slot in range(3)] == [2, 2, 2]


def test_llamas_own_refusal_becomes_bad_batch(shared: Context) -> None:
    batch = Batch(4)
    batch.add_run([1, 2], 0, 0, True)
    shared.decode(batch)
    code = shared._failure(-1, 1)
    assert isinstance(code, BadBatch)
    assert isinstance(shared._failure(-3, 1), EngineFailed)


def test_exact_mode_is_exact(model: Model, exact: Context) -> None:
    """Alone, chunked, on two threads and in mixed batches: the same bits."""
    ids = model.tokenize(TEXT)
    batch = Batch(64)
    batch.add_run(ids, 0, 0, True)
    exact.decode(batch)
    alone = exact.logits(len(ids) - 1)

    kv.clear(exact)
    for start in range(0, len(ids), 7):
        part = ids[start : start + 7]
        batch.clear()
        batch.add_run(part, start, 1, start + len(part) == len(ids))
        exact.set_threads(2 if start == 0 else 1)
        exact.decode(batch)
    assert np.array_equal(exact.logits(len(batch) - 1), alone)

    kv.clear(exact)
    half = len(ids) // 2
    batch.clear()
    batch.add_run(ids[:half], 0, 2, False)
    batch.add_run(ids[5:9], 0, 0, True)
    exact.decode(batch)
    batch.clear()
    batch.add(77, 4, (0,), True)
    last = batch.add_run(ids[half:], half, 2, True)
    exact.decode(batch)
    assert np.array_equal(exact.logits(last), alone)


def test_abort_stops_a_decode(model: Model) -> None:
    with Context(model, ContextConfig(n_ctx=256)) as context:
        asked: list[int] = []

        def stop() -> bool:
            asked.append(1)
            return len(asked) > 50

        context.set_abort(stop)
        with pytest.raises(DecodeAborted):
            fill(context, 100)
        assert len(asked) == 51
        context.set_abort(None)
        kv.clear(context)
        fill(context, 10)
        assert context.pos_max(0) == 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_ctx": 0}, "n_ctx is 0"),
        ({"n_threads": -1}, "n_threads is -1"),
        ({"mode": "fast"}, "no mode"),
        ({"type_k": "int8"}, "cannot be 'int8'"),
        ({"type_v": "q8_0", "flash_attn": False}, "needs flash attention"),
        ({"n_seq_max": 100_000}, "too many"),
    ],
)
def test_impossible_configurations(model: Model, change: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineMisuse, match=words):
        Context(model, replace(ContextConfig(), **change))


def test_which_configurations_are_exact() -> None:
    assert ContextConfig().is_exact
    assert ContextConfig(type_k="q8_0", type_v="q8_0").is_exact
    assert not ContextConfig(type_k="f16", type_v="f16").is_exact
    assert not ContextConfig("shared").is_exact
    assert not ContextConfig(flash_attn=False).is_exact


def test_closed_contexts_say_so(model: Model) -> None:
    context = Context(model, ContextConfig(n_ctx=256))
    batch = Batch(1)
    batch.add(5, 0, (0,), True)
    context.close()
    context.close()
    for call in (
        lambda: context.decode(batch),
        lambda: context.pos_max(0),
        lambda: context.rows(),
        lambda: context.set_threads(1),
        lambda: kv.clear(context),
        lambda: kv.save(context, 0),
    ):
        with pytest.raises(EngineMisuse, match="was closed"):
            call()


def test_cells_are_logged_only_on_request(model: Model) -> None:
    assert CELL_LOG not in os.environ
    for wanted in (True, False):
        config = ContextConfig("shared", n_ctx=256, n_seq_max=2, log_cells=wanted)
        with Context(model, config) as context, library.captured_log() as lines:
            fill(context, 3)
            fill(context, 2, slot=1)
        assert any("find_slot" in line for line in lines) is wanted
        # Between the decodes slot 0 owned the first three cells: its number stands there three times.
        assert any(line.strip().startswith("000.") for line in lines) is wanted
    assert CELL_LOG not in os.environ
