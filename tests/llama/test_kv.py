"""Operations on the cache: sharing, copying, saving, and what is refused."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import EngineMisuse, NoSpace
from tutor.llama.model import Model

PREFIX = "Continue the list of numbers. Keep the same step, use commas.\n"
LIST = "11, 21, 31, 41, 51, 61,"


def put(context: Context, ids: list[int], slot: int, first: int = 0) -> np.ndarray:
    """Decode ids into a slot; return the logits of the last."""
    batch = Batch(len(ids), 1)
    last = batch.add_run(ids, first, slot, True)
    context.decode(batch)
    return context.logits(last)


@pytest.fixture
def ids(model: Model) -> list[int]:
    return model.tokenize(LIST)


def test_rm_trims_and_empties(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig(n_ctx=512, n_seq_max=2)) as context:
        whole = put(context, ids, 0)
        kv.seq_rm(context, 0, len(ids) - 3)
        assert kv.pos_max(context, 0) == len(ids) - 4
        assert np.array_equal(put(context, ids[-3:], 0, len(ids) - 3), whole)
        kv.seq_rm(context, 0)
        assert (kv.pos_min(context, 0), kv.pos_max(context, 0)) == (-1, -1)
        put(context, ids, 1)
        kv.clear(context)
        assert kv.pos_max(context, 1) == -1


@pytest.mark.parametrize("slot", [-1, 2])
def test_unknown_slots(model: Model, slot: int) -> None:
    with Context(model, ContextConfig(n_ctx=512, n_seq_max=2)) as context:
        for call in (
            lambda: kv.seq_rm(context, slot),
            lambda: kv.seq_cp(context, slot, 0),
            lambda: kv.seq_cp(context, 0, slot),
            lambda: kv.seq_add(context, slot, 0, -1, 1),
            lambda: kv.save(context, slot),
            lambda: kv.restore(context, slot, b""),
            lambda: kv.pos_min(context, slot),
        ):
            with pytest.raises(EngineMisuse, match=f"no slot {slot}"):
                call()


def test_a_shared_prefix_costs_no_cells(model: Model, ids: list[int]) -> None:
    """Three slots hold a prefix of 120 in 256 cells, which three copies of it could not."""
    prefix = (model.tokenize(PREFIX) * 20)[:120]
    with Context(model, ContextConfig("shared", n_ctx=256, n_seq_max=3)) as context:
        put(context, prefix, 0)
        kv.seq_cp(context, 0, 1, 0, 120)
        kv.seq_cp(context, 0, 2, 0, 90)
        assert [kv.pos_max(context, slot) for slot in range(3)] == [119, 119, 89]
        shared = put(context, ids, 1, 120)
        with pytest.raises(EngineMisuse, match="already holds positions up to 89"):
            kv.seq_cp(context, 0, 2, 60, 120)
        kv.seq_cp(context, 0, 2, 90, 120)
        assert kv.pos_max(context, 2) == 119
        kv.seq_rm(context, 0)
        kv.seq_rm(context, 2)
    with Context(model, ContextConfig(n_ctx=256)) as context:
        alone = put(context, prefix + ids, 0)
    assert int(shared.argmax()) == int(alone.argmax())


def test_copies_of_nothing_and_onto_itself(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig("shared", n_ctx=256, n_seq_max=2)) as context:
        with pytest.raises(EngineMisuse, match="holds no position"):
            kv.seq_cp(context, 0, 1)
        put(context, ids, 0)
        with pytest.raises(EngineMisuse, match="holds no position"):
            kv.seq_cp(context, 0, 1, len(ids), len(ids) + 5)
        kv.seq_cp(context, 0, 0)
        assert kv.pos_max(context, 0) == len(ids) - 1


def test_exact_contexts_copy_whole_slots_at_the_next_decode(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig(n_ctx=768, n_seq_max=3)) as context:
        put(context, ids[:-1], 0)
        for p0, p1 in ((1, -1), (0, len(ids) - 2), (2, 4)):
            with pytest.raises(EngineMisuse, match="whole slots only"):
                kv.seq_cp(context, 0, 1, p0, p1)
        kv.seq_cp(context, 0, 1, 0, len(ids) - 1)
        assert kv.pos_max(context, 1) == len(ids) - 2
        for slot in (0, 1):
            with pytest.raises(EngineMisuse, match="made at the next decode"):
                kv.save(context, slot)
            with pytest.raises(EngineMisuse, match="made at the next decode"):
                kv.restore(context, slot, b"x")
        original = put(context, ids[-1:], 0, len(ids) - 1)
        assert np.array_equal(put(context, ids[-1:], 1, len(ids) - 1), original)
        kv.restore(context, 2, kv.save(context, 1))
        assert np.array_equal(put(context, [5], 2, len(ids)), put(context, [5], 0, len(ids)))


def test_saved_state_continues_with_the_same_bits(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig(n_ctx=512, n_seq_max=2)) as context:
        put(context, ids[:-1], 0)
        blob = kv.save(context, 0)
        held = (len(ids) - 1) * 2 * model.dims.kv_elements_per_token()
        assert held < len(blob) < held + 12 * len(ids) + 1500
        untouched = put(context, ids[-1:], 0, len(ids) - 1)
        put(context, ids[:2], 1)
        kv.restore(context, 1, blob)
        assert kv.pos_max(context, 1) == len(ids) - 2
        assert np.array_equal(put(context, ids[-1:], 1, len(ids) - 1), untouched)


def test_state_moves_between_contexts_with_one_part(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig(n_ctx=256)) as source:
        put(source, ids[:-1], 0)
        blob = kv.save(source, 0)
        expected = put(source, ids[-1:], 0, len(ids) - 1)
    with Context(model, ContextConfig("shared", n_ctx=256, n_seq_max=2)) as target:
        kv.restore(target, 1, blob)
        assert int(put(target, ids[-1:], 1, len(ids) - 1).argmax()) == int(expected.argmax())


@pytest.mark.parametrize("spoil", ["type", "parts", "cut", "empty", "garbage"])
def test_state_that_does_not_fit(model: Model, ids: list[int], spoil: str) -> None:
    with Context(model, ContextConfig(n_ctx=256)) as source:
        put(source, ids, 0)
        blob = kv.save(source, 0)
    config = ContextConfig(
        n_ctx=512,
        n_seq_max=2 if spoil == "parts" else 1,
        type_k="f16" if spoil == "type" else "bf16",
    )
    data = {"cut": blob[: len(blob) // 2], "empty": b"", "garbage": b"abc" * 1000}.get(spoil, blob)
    with Context(model, config) as target:
        put(target, ids[:2], 0)
        with pytest.raises(EngineMisuse, match="does not fit slot 0"):
            kv.restore(target, 0, data)
        assert kv.pos_max(target, 0) == -1
        put(target, ids, 0)


def test_restore_without_room(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig("shared", n_ctx=256, n_seq_max=2)) as context:
        put(context, (ids * 20)[:150], 0)
        blob = kv.save(context, 0)
        with pytest.raises(NoSpace, match="restore slot 1"):
            kv.restore(context, 1, blob)
        assert (kv.pos_max(context, 0), kv.pos_max(context, 1)) == (149, -1)
        kv.seq_rm(context, 0)
        kv.restore(context, 1, blob)
        assert kv.pos_max(context, 1) == 149


RAW = """
import sys
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.model import Model, find_model
context = Context(Model.load(find_model()), ContextConfig(n_ctx=512, n_seq_max=2))
batch = Batch(8)
batch.add_run([10, 11, 12, 13], 0, 0, True)
context.decode(batch)
batch.clear()
if sys.argv[1] == "part":
    context.lib.llama_memory_seq_cp(context.memory, 0, 1, 0, 2)
elif sys.argv[1] == "shift":
    context.lib.llama_memory_seq_add(context.memory, 0, 0, -1, 5)
    batch.add(5, 9, (0,), True)
    context.lib.llama_decode(context.pointer, batch.struct())
elif sys.argv[1] == "slot":
    context.lib.llama_memory_seq_rm(context.memory, 7, -1, -1)
"""


@pytest.mark.parametrize("how", ["part", "shift", "slot"])
def test_unguarded_the_same_calls_end_the_process(child, how: str) -> None:  # type: ignore[no-untyped-def]
    """Why the guards are there, and that a crash is quick: no debugger is started on it."""
    done = child("-c", RAW, how)
    assert done.returncode == -signal.SIGABRT
    assert (done.stdout, len(done.stderr.splitlines())) == (b"", 1)
    assert child("-c", RAW, "nothing").returncode == 0


def test_shift_moves_positions_where_k_can_be_rotated(model: Model, ids: list[int]) -> None:
    with Context(model, ContextConfig(n_ctx=256, type_k="f16", type_v="f16")) as context:
        put(context, ids, 0)
        kv.seq_add(context, 0, 0, -1, 5)
        assert (kv.pos_min(context, 0), kv.pos_max(context, 0)) == (5, len(ids) + 4)
        put(context, [5], 0, len(ids) + 5)
        with pytest.raises(EngineMisuse, match="negative"):
            kv.seq_add(context, 0, 0, -1, -9)
    with Context(model, ContextConfig(n_ctx=256)) as context:
        put(context, ids, 0)
        with pytest.raises(EngineMisuse, match="cannot be moved in a bf16 cache"):
            kv.seq_add(context, 0, 0, -1, 5)
