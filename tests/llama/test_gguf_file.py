"""The walk over a GGUF header, on small files written by the gguf package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.llama import gguf_file
from tutor.llama.errors import BrokenModel

MATRIX = np.linspace(-1.0, 1.0, 4 * 64, dtype=np.float32).reshape(4, 64)


def write(path: Path, filler: str = "") -> Path:
    """Three tensors, an unusual alignment, and every kind of value."""
    writer = GGUFWriter(path, "llama")
    writer.add_string("a.filler", filler)
    writer.add_custom_alignment(64)
    writer.add_uint32("a.number", 7)
    writer.add_bool("a.flag", True)
    writer.add_float64("a.float", 0.5)
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.words", ["one", "zwölf", ""])
    writer.add_tensor("plain", MATRIX)
    writer.add_tensor("half", MATRIX.astype(np.float16))
    writer.add_tensor(
        "quantised",
        quantize(MATRIX, GGMLQuantizationType.Q8_0),
        raw_dtype=GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "small.gguf")


def test_the_alignment_of_the_file_holds(tmp_path: Path) -> None:
    """With headers that differ by half of it, the default of 32 would be wrong for one."""
    for filler in ("", "x" * 32):
        path = write(tmp_path / "aligned.gguf", filler)
        header = gguf_file.read_header(path)
        assert header.data_start % 64 == 0
        assert np.array_equal(gguf_file.read_weight(path, header, "plain"), MATRIX)


def test_reads_shapes_words_and_weights(small: Path) -> None:
    header = gguf_file.read_header(small)
    assert {name: info.shape for name, info in header.tensors.items()} == {
        "plain": (4, 64),
        "half": (4, 64),
        "quantised": (4, 64),
    }
    assert gguf_file.read_strings(small, header, "a.words") == [b"one", "zwölf".encode(), b""]
    assert np.array_equal(gguf_file.read_weight(small, header, "plain"), MATRIX)
    assert np.array_equal(gguf_file.read_weight(small, header, "half"), MATRIX.astype(np.float16))
    quantised = gguf_file.read_weight(small, header, "quantised")
    assert quantised.dtype == np.float32
    assert 0.0 < np.abs(quantised - MATRIX).max() < 1 / 127


def test_the_last_byte_counts(small: Path, tmp_path: Path) -> None:
    end = gguf_file.read_header(small).data_end
    data = small.read_bytes()
    exact, short = tmp_path / "exact.gguf", tmp_path / "short.gguf"
    exact.write_bytes(data[:end])
    short.write_bytes(data[: end - 1])
    assert gguf_file.read_header(exact).data_end == end
    with pytest.raises(BrokenModel, match="damaged or incomplete"):
        gguf_file.read_header(short)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_survived(small: Path, data: st.DataObject) -> None:
    """Whatever bytes are wrong, the answer is a header or BrokenModel, never another exception."""
    content = bytearray(small.read_bytes())
    header_end = gguf_file.read_header(small).data_start
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, header_end - 1))
        content[at] = data.draw(st.integers(0, 255))
    damaged = small.with_name("damaged.gguf")
    damaged.write_bytes(content)
    try:
        header = gguf_file.read_header(damaged)
    except BrokenModel:
        return
    assert header.data_end <= len(content)
