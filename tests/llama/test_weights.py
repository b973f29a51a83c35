"""Requantised weights: made once, sealed, made again when damaged, and still a model that makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tutor.llama import weights
from tutor.llama.errors import BrokenModel, EngineFailed, EngineMisuse, ModelNotFound
from tutor.llama.gguf_file import read_header
from tutor.llama.reference import ReferenceModel

QUESTION = "The capital of France is"
GGML_Q8_0 = 8


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def use_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUTOR_CACHE", str(cache))
    yield


@pytest.fixture(scope="module")
def q8(cache: Path, model_path: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUTOR_CACHE", str(cache))
        return weights.requantize(model_path, "q8_0", n_threads=1)


def test_q8_0_is_a_model_that_answers(q8: Path, model_path: Path) -> None:
    kinds = {
        tensor.kind
        for name, tensor in read_header(q8).tensors.items()
        if "ffn" in name and "norm" not in name
    }
    assert kinds == {GGML_Q8_0}
    assert q8.stat().st_size > 1.3 * model_path.stat().st_size
    with ReferenceModel.load(str(q8)) as reference:
        assert reference.dims.n_layer == 30
        assert b"Paris" in reference.detokenize(reference.greedy(reference.tokenize(QUESTION), 4))


def test_the_second_call_makes_nothing(q8: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(weights, "_make", never)
    before = q8.stat()
    assert weights.weights(model_path, "q8_0") == q8
    assert q8.stat().st_mtime_ns == before.st_mtime_ns
    assert weights.weights(model_path, "shipped") == model_path


@pytest.mark.parametrize("damage", ["a bit", "cut short", "gone", "no seal"])
def test_a_damaged_file_is_made_again(
    q8: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    good = q8.read_bytes()
    seal = q8.with_suffix(".sha256")
    match damage:
        case "a bit":
            bad = bytearray(good)
            bad[-1000] ^= 1
            q8.write_bytes(bad)
        case "cut short":
            q8.write_bytes(good[: len(good) // 2])
        case "gone":
            q8.unlink()
        case _:
            seal.write_bytes(b"\xff")
    made = []
    make = weights._make

    def count(*arguments: object) -> None:
        made.append(arguments)
        if damage == "a bit":
            make(*arguments)  # type: ignore[arg-type]
        else:  # the quantiser ran above; this is about when it is asked to
            q8.write_bytes(good)
            seal.write_text(weights.file_digest(q8))

    monkeypatch.setattr(weights, "_make", count)
    assert weights.requantize(model_path, "q8_0", n_threads=1) == q8
    assert len(made) == 1
    assert q8.read_bytes() == good
    assert weights.requantize(model_path, "q8_0") == q8
    assert len(made) == 1


def test_a_model_of_the_same_name_has_its_own_file(q8: Path, model_path: Path, tmp_path: Path) -> None:
    other = tmp_path / model_path.name
    other.write_bytes(model_path.read_bytes()[:-32])
    with pytest.raises(BrokenModel, match="damaged or incomplete"):
        weights.requantize(other, "q8_0")
    assert len(list(q8.parent.glob("*.gguf"))) == 1


def test_what_cannot_be_made_is_one_sentence(
    cache: Path, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineMisuse, match="cannot be made 'q2_k'"):
        weights.weights(model_path, "q2_k")  # type: ignore[arg-type]
    with pytest.raises(ModelNotFound, match="does not exist"):
        weights.requantize(tmp_path / "none.gguf", "q8_0")
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TUTOR_CACHE", str(blocked))
    with pytest.raises(EngineFailed, match=r"cannot be written to .* TUTOR_CACHE"):
        weights.requantize(model_path, "q8_0")


def test_a_quantiser_that_fails_leaves_no_file(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp refuses a file type that does not exist; what it had written is removed."""
    monkeypatch.setenv("TUTOR_CACHE", str(tmp_path))
    monkeypatch.setitem(weights.FILE_TYPES, "q4_0", 999)
    with pytest.raises(EngineFailed, match="cannot make q4_0 weights"):
        weights.requantize(model_path, "q4_0", n_threads=1)
    assert {path.suffix for path in (tmp_path / "models").iterdir()} == {".lock"}


def test_one_process_makes_it_at_a_time(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    monkeypatch.setenv("TUTOR_CACHE", str(tmp_path))
    monkeypatch.setattr(weights, "LOCK_SECONDS", 0.05)
    folder = tmp_path / "models"
    folder.mkdir()
    digest = weights.file_digest(model_path)[:16]
    with (
        FileLock(folder / f"{model_path.stem}.{digest}.q8_0.lock"),
        pytest.raises(EngineFailed, match="Another process"),
    ):
        weights.requantize(model_path, "q8_0")
