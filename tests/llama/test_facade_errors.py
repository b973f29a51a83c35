"""What would end the process inside llama.cpp is a typed error with a sentence, and the engine goes on.

One child process makes all the mistakes, so that a crash is a failing test here and not the end of the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
EXPECTED = {
    "partial seq_cp": ("EngineMisuse", "copy whole slots only"),
    "seq_cp of nothing": ("EngineMisuse", "holds no position"),
    "too many tokens": ("EngineMisuse", "has 33 tokens; this context takes 32"),
    "position gap": ("BadBatch", "its next position is 5, not 9"),
    "gap inside a batch": ("BadBatch", "position 7 follows position 5"),
    "rewind": ("BadBatch", "its next position is 5, not 2"),
    "seq_add on bf16": ("EngineMisuse", "cannot be moved in a bf16 cache"),
    "logits not asked for": ("EngineMisuse", "did not ask for logits of entry 0"),
    "unknown slot": ("EngineMisuse", "There is no slot 2"),
    "unknown slot of an operation": ("EngineMisuse", "There is no slot -1"),
    "token of two slots": ("EngineMisuse", "needs shared cells"),
    "unknown token": ("BadBatch", "does not have"),
    "empty batch": ("BadBatch", "batch is empty"),
    "more slots than n_batch": ("EngineMisuse", "too small for this many slots"),
    "more slots than n_ctx": ("EngineMisuse", "too small for this many slots"),
    "more slots than llama.cpp has": ("EngineMisuse", "9999 slots are too many"),
    "blob of another cache type": ("EngineMisuse", "does not fit slot 1"),
    "blob cut short": ("EngineMisuse", "does not fit slot 1"),
    "blob of noise": ("EngineMisuse", "does not fit slot 1"),
    "empty blob": ("EngineMisuse", "does not fit slot 1"),
    "more layers than there is a GPU for": ("EngineUnavailable", "cannot use a GPU"),
    "decode of a closed context": ("EngineMisuse", "context was closed"),
    "logits of a closed context": ("EngineMisuse", "context was closed"),
    "seq_rm of a closed context": ("EngineMisuse", "context was closed"),
    "save of a closed context": ("EngineMisuse", "context was closed"),
    "threads of a closed context": ("EngineMisuse", "context was closed"),
    "tokenize of a closed model": ("EngineMisuse", "model was closed"),
    "piece of a closed model": ("EngineMisuse", "model was closed"),
    "context of a closed model": ("EngineMisuse", "model was closed"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, str(HERE / "misuse_child.py")], capture_output=True, timeout=120, check=False
    )
    said = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, f"died after {said[-1:]}: {run.stderr.decode()[-2000:]}"
    assert not run.stderr, "nothing reaches the terminal"
    return {entry["case"]: entry for entry in said}


def test_every_case_ran(outcomes: dict[str, dict[str, Any]]) -> None:
    assert list(outcomes) == list(EXPECTED)


@pytest.mark.parametrize("case", EXPECTED)
def test_a_sentence_and_a_way_out(outcomes: dict[str, dict[str, Any]], case: str) -> None:
    kind, words = EXPECTED[case]
    found = outcomes[case]
    assert found["kind"] == kind, found
    assert words in found["text"]
    assert found["text"].endswith(".")
    assert found["text"].count(". ") >= 1, "what is wrong, then the way out"
    assert "\n" not in found["text"]


def test_the_next_decode_works_after_each(outcomes: dict[str, dict[str, Any]]) -> None:
    tokens = {entry["token"] for entry in outcomes.values()}
    assert len(tokens) == 1, tokens
