"""Taps copy what llama.cpp computes, and refuse what they cannot read."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tutor.llama import taps
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import EngineMisuse, EngineUnavailable
from tutor.llama.model import Model
from tutor.llama.taps import Tap, TensorStruct


def decode(model: Model, tap: Tap, **config: object) -> Batch:
    batch = Batch(8, 1)
    batch.add_run([10, 11, 12], 0, 0, True)
    with Context(model, ContextConfig(n_ctx=256, **config), tap) as context:  # type: ignore[arg-type]
        context.decode(batch)
    return batch


def test_begins_anew_with_each_decode(model: Model) -> None:
    tap = Tap(["result_norm"])
    decode(model, tap)
    first = tap.captured["result_norm"]
    assert [array.shape for array in first] == [(1, 1, 1, 576)]
    assert tap.seen["Qcur-0"] == 3
    decode(model, tap)
    assert len(tap.captured["result_norm"]) == 1
    assert np.array_equal(tap.captured["result_norm"][0], first[0])


def test_a_tap_does_not_change_the_answer(model: Model) -> None:
    batch = Batch(8, 1)
    batch.add_run([10, 11, 12], 0, 0, True)
    answers = []
    for tap in (None, Tap(lambda name: name.endswith("-3"))):
        with Context(model, ContextConfig(n_ctx=256), tap) as context:
            context.decode(batch)
            answers.append(context.logits(2))
    assert np.array_equal(*answers)


def test_cache_types_are_widened(model: Model) -> None:
    """K as it lies in the cache: bf16 and f16 both near the f32 tensor that was put there."""
    for kind, error in (("bf16", 2**-8), ("f16", 2**-11)):
        tap = Tap(lambda name: name == "Kcur-0" or name.startswith("cache_k_l0"))
        decode(model, tap, type_k=kind, type_v=kind)
        cached = next(arrays for name, arrays in tap.captured.items() if name.startswith("cache_k_l0"))
        rotated = tap.captured["Kcur-0"][-1].reshape(3, 192)
        stored = cached[-1].reshape(-1, 192)[:3]
        assert stored.dtype == np.float32
        assert np.abs(stored - rotated).max() <= error * np.abs(rotated).max()


def test_types_a_tap_cannot_read_are_an_error_not_a_crash(model: Model) -> None:
    tap = Tap(lambda name: name.startswith("cache_k_l0"))
    with pytest.raises(EngineMisuse, match="ggml type 8"):
        decode(model, tap, type_k="q8_0", type_v="q8_0")


def test_strided_and_empty_tensors() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensor = TensorStruct(type=taps.F32, data=values.ctypes.data, name=b"view")
    tensor.ne[:] = (4, 6, 1, 1)  # the transpose: rows of the array become columns
    tensor.nb[:] = (24, 4, 96, 96)
    assert np.array_equal(taps._copy(tensor, "view")[0, 0], values.T)
    tensor.ne[:] = (0, 6, 1, 1)
    assert taps._copy(tensor, "view").size == 0


def test_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(ctypes.Structure):
        _fields_ = (*TensorStruct._fields_, ("more", ctypes.c_int64))

    taps.check_layout()
    taps.check_layout.cache_clear()
    monkeypatch.setattr(taps, "TensorStruct", Longer)
    with pytest.raises(EngineUnavailable, match="lays out its tensors in another way"):
        Tap(["result_norm"])
    taps.check_layout.cache_clear()
