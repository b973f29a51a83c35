"""Layers on a GPU: refused with a sentence where there is none, passed on where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tutor.llama import library
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import EngineMisuse, EngineUnavailable
from tutor.llama.model import Model
from tutor.llama.taps import Tap


class Spy:
    """Notes what the model and its contexts are made with, and makes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
        lib = library.load()
        self.models: list[tuple[int, bool]] = []  # (n_gpu_layers, were the devices named?)
        self.contexts: list[tuple[bool, bool]] = []  # (offload_kqv, op_offload)
        load, make = lib.llama_model_load_from_file, lib.llama_init_from_model

        def spy_load(path: Any, params: Any) -> Any:
            self.models.append((params.n_gpu_layers, bool(params.devices)))
            return load(path, params)

        def spy_make(pointer: Any, params: Any) -> Any:
            self.contexts.append((params.offload_kqv, params.op_offload))
            return make(pointer, params)

        monkeypatch.setattr(lib, "llama_model_load_from_file", spy_load)
        monkeypatch.setattr(lib, "llama_init_from_model", spy_make)
        monkeypatch.setattr(lib, "llama_supports_gpu_offload", lambda: gpu)


@pytest.mark.parametrize("layers", [1, 99, -1])
def test_without_gpu_support_there_is_a_sentence(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    spy = Spy(monkeypatch, gpu=False)
    with pytest.raises(EngineUnavailable, match=r"cannot use a GPU\. Use n_gpu_layers=0, or compile"):
        Model.load(model_path, n_gpu_layers=layers)
    assert spy.models == []


def test_a_count_below_minus_one_means_nothing(model_path: Path) -> None:
    with pytest.raises(EngineMisuse, match="n_gpu_layers is -2"):
        Model.load(model_path, -2)


@pytest.mark.parametrize(("layers", "on_gpu"), [(0, False), (12, True), (-1, True)])
def test_layers_and_flags_are_passed_on(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int, on_gpu: bool
) -> None:
    """With the CPU alone an empty list of devices is named, so that llama.cpp looks for no other."""
    spy = Spy(monkeypatch, gpu=True)
    with Model.load(model_path, layers) as model:
        assert model.n_gpu_layers == layers
        Context(model, ContextConfig(n_ctx=256)).close()
    assert spy.models == [(layers, not on_gpu)]
    assert spy.contexts == [(on_gpu, on_gpu)]


def test_a_tap_is_refused_where_tensors_are_not_in_the_cpus_memory(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spy(monkeypatch, gpu=True)
    with (
        Model.load(model_path, -1) as model,
        pytest.raises(EngineMisuse, match="reads the CPU's memory only"),
    ):
        Context(model, ContextConfig(n_ctx=256), Tap(["result_norm"]))
