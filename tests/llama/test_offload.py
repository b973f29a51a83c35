"""Layers on a GPU: refused with a sentence where there is none, passed on where there is one."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tutor.labs.child import run
from tutor.llama import library
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import EngineMisuse, EngineUnavailable
from tutor.llama.messages import Setup, Started, decode_message
from tutor.llama.model import Model
from tutor.llama.taps import Tap
from tutor.llama.worker import Channel


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


def test_a_labs_setting_reaches_model_context_and_header(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy, out = Spy(monkeypatch, gpu=True), io.BytesIO()
    setup = Setup("paged", {}, str(model_path), paused=True, n_gpu_layers=5)
    assert run(setup, Channel(io.BytesIO(b""), out)) == 0
    assert spy.models == [(5, False)] and spy.contexts == [(True, True)]
    started = decode_message(out.getvalue().splitlines()[0])
    assert isinstance(started, Started) and started.header.hardware.endswith(", 5 layers on the GPU")


@pytest.mark.parametrize("layers", ["-1", "7"])
def test_the_command_passes_it_on(model_path: Path, monkeypatch: pytest.MonkeyPatch, layers: str) -> None:
    """The child process answers with the sentence of a build without a GPU, and ends in peace."""
    if library.load().llama_supports_gpu_offload():
        pytest.skip("this llama.cpp was built for a GPU")
    command = [sys.executable, "-m", "tutor", "lab", "paged", "--headless", "--n-gpu-layers", layers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3 and "cannot use a GPU" in done.stderr
    assert "Fatal" not in done.stderr and "Traceback" not in done.stderr
