"""Interventions change a tensor while it is computed; switched off they leave no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tutor.llama import kv, taps
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import EngineMisuse
from tutor.llama.model import Model
from tutor.llama.taps import Tap, TensorStruct

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def watched(model: Model) -> Iterator[Context]:
    with Context(model, ContextConfig(n_ctx=256), Tap()) as context:
        yield context


@pytest.fixture
def tap(watched: Context) -> Iterator[Tap]:
    assert watched.tap is not None
    watched.tap.interventions.clear()
    yield watched.tap
    watched.tap.interventions.clear()


@pytest.fixture(scope="module")
def plain(model: Model) -> np.ndarray:
    """The logits after the prompt, from a context without a tap."""
    with Context(model, ContextConfig(n_ctx=256)) as context:
        return logits(context)


def logits(context: Context) -> np.ndarray:
    ids = context.model.tokenize(PROMPT)
    kv.clear(context)
    batch = Batch(16, 1)
    last = batch.add_run(ids, 0, 0, True)
    context.decode(batch)
    return context.logits(last)


def test_a_context_without_a_tap_installs_no_callback(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    make = model.lib.llama_init_from_model
    installed = []

    def spy(pointer: Any, params: Any) -> Any:
        installed.append(bool(params.cb_eval))
        return make(pointer, params)

    monkeypatch.setattr(model.lib, "llama_init_from_model", spy)
    for given in (None, Tap()):
        Context(model, ContextConfig(n_ctx=256), given).close()
    assert installed == [False, True]


def test_zeroing_moves_the_logits_and_leaves_nothing_behind(
    watched: Context, tap: Tap, plain: np.ndarray
) -> None:
    assert np.array_equal(logits(watched), plain)
    tap.interventions["ffn_out-15"] = "zero"
    moved = np.abs(logits(watched) - plain).max()
    assert 8.0 < moved < 9.2, moved
    assert tap.changed == {"ffn_out-15": 1}
    del tap.interventions["ffn_out-15"]
    assert np.array_equal(logits(watched), plain)
    assert tap.changed == {}


def test_a_function_that_returns_its_input_changes_nothing(
    watched: Context, tap: Tap, plain: np.ndarray
) -> None:
    shapes = []

    def same(values: np.ndarray) -> np.ndarray:
        shapes.append(values.shape)
        return values

    tap.interventions["Kcur-7"] = same
    assert np.array_equal(logits(watched), plain)
    assert shapes == [(1, 1, 5, 192), (1, 5, 3, 64)], "projected, then rotated; the view between is skipped"


def test_a_function_and_zero_agree_and_the_next_node_sees_it(model: Model, plain: np.ndarray) -> None:
    answers = []
    for change in ("zero", np.zeros_like):
        tap = Tap(["ffn_out-15", "l_out-15", "ffn_inp-15"], {"ffn_out-15": change})
        with Context(model, ContextConfig(n_ctx=256), tap) as context:
            answers.append(logits(context))
        assert not tap.captured["ffn_out-15"][0].any(), "a capture shows what the next node reads"
        assert np.array_equal(tap.captured["l_out-15"][0], tap.captured["ffn_inp-15"][0])
    assert np.array_equal(*answers)
    assert not np.array_equal(answers[0], plain)


def test_halving_a_tensor_is_linear_up_to_the_next_node(model: Model) -> None:
    """Half of the FFN's output adds half as much to the residual stream."""
    outs = []
    for changes in ({}, {"ffn_out-3": lambda values: values / 2}):
        tap = Tap(["l_out-3", "ffn_inp-3"], changes)
        with Context(model, ContextConfig(n_ctx=256), tap) as context:
            logits(context)
        outs.append(tap.captured["l_out-3"][0] - tap.captured["ffn_inp-3"][0])
    assert np.allclose(outs[1], outs[0] / 2, atol=1e-4)


def bad_shape(values: np.ndarray) -> np.ndarray:
    return values[..., :-1]


def text(_values: np.ndarray) -> np.ndarray:
    return np.array("zero")


def words(values: np.ndarray) -> np.ndarray:
    return np.full(values.shape, "zero")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ffn_out-15", bad_shape, r"returned shape \(1, 1, 5, 575\); the tensor has \(1, 1, 5, 576\)"),
        ("ffn_out-15", text, r"returned shape \(\)"),
        ("ffn_out-15", words, "values of type <U4"),
        ("ffn_out-15", "one", "no intervention 'one'"),
        ("ffn_out-99", "zero", "no tensor named 'ffn_out-99'"),
    ],
)
def test_what_cannot_be_written_is_an_error_after_the_decode(
    watched: Context, tap: Tap, plain: np.ndarray, name: str, change: Any, message: str
) -> None:
    tap.interventions[name] = change
    with pytest.raises(EngineMisuse, match=message):
        logits(watched)
    assert watched.pos_max(0) == 4, "the decode itself ran"
    tap.interventions.clear()
    assert np.array_equal(logits(watched), plain), "the next decode works"


def test_an_exception_of_the_function_reaches_the_caller(
    watched: Context, tap: Tap, plain: np.ndarray
) -> None:
    calls = []

    def broken(values: np.ndarray) -> np.ndarray:
        calls.append(1)
        raise ZeroDivisionError("mine")

    tap.interventions["Kcur-0"] = broken
    with pytest.raises(ZeroDivisionError, match="mine"):
        logits(watched)
    assert len(calls) == 1, "after a failure nothing else is changed"
    tap.interventions.clear()
    assert np.array_equal(logits(watched), plain)


def test_tensors_of_every_type_are_written_through_their_strides() -> None:
    def tensor(memory: np.ndarray, kind: int) -> TensorStruct:
        made = TensorStruct(type=kind, data=memory.ctypes.data, name=b"t")
        size = memory.itemsize
        made.ne[:] = (2, 3, 1, 1)  # the first two of every row of four
        made.nb[:] = (size, 4 * size, 12 * size, 12 * size)
        return made

    add: Callable[[np.ndarray], np.ndarray] = lambda values: values + 1  # noqa: E731
    for kind, dtype in ((taps.F32, np.float32), (taps.F16, np.float16), (taps.I32, np.int32)):
        memory = np.arange(12, dtype=dtype).reshape(3, 4)
        taps._write(tensor(memory, kind), "t", add)
        assert memory.tolist() == [[1, 2, 2, 3], [5, 6, 6, 7], [9, 10, 10, 11]]
    with pytest.raises(EngineMisuse, match="float64"):
        taps._write(tensor(np.zeros((3, 4), np.int32), taps.I32), "t", lambda values: values + 0.5)
    halves = np.zeros((3, 4), np.uint16)
    taps._write(tensor(halves, taps.BF16), "t", lambda values: values + np.float32(1 + 2**-8))
    assert (halves[:, :2] == 0x3F80).all(), "a tie goes to the even neighbour"
    taps._write(tensor(halves, taps.BF16), "t", lambda values: values * np.float32(np.nan))
    assert (halves[:, :2] == 0x7FC0).all()
    assert not halves[:, 2:].any()
