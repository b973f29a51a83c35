"""Saved sequences taken apart and put together again, on llama.cpp's own bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.blob import (
    BlobError,
    cut_frame,
    elements,
    from_float32,
    parse,
    parse_frame,
    rebuild,
    to_float32,
)
from tutor.llama.context import Context, ContextConfig
from tutor.llama.model import Model

TEXT = "A page of memory holds the keys and values of sixteen tokens."


def saved(model: Model, slot: int = 0, drop: int | None = None, **settings: object) -> bytes:
    ids = model.tokenize(TEXT)
    with Context(model, ContextConfig(**{"n_ctx": 256, **settings})) as context:  # type: ignore[arg-type]
        batch = Batch(len(ids), 1)
        batch.add_run(ids, 0, slot, True)
        context.decode(batch)
        if drop is not None:
            kv.seq_rm(context, slot, drop)
        return kv.save(context, slot)


@pytest.fixture(scope="module")
def blob(model: Model) -> bytes:
    return saved(model)


@pytest.mark.parametrize(
    ("settings", "type_id"),
    [
        ({}, 30),
        ({"type_k": "f16", "type_v": "f16"}, 1),
        ({"n_ctx": 768, "n_seq_max": 3, "slot": 1}, 30),
        ({"mode": "shared", "n_seq_max": 2, "slot": 1}, 30),
        ({"drop": 5}, 30),
    ],
)
def test_layout_of_real_blobs(model: Model, settings: dict[str, object], type_id: int) -> None:
    data = saved(model, **settings)  # type: ignore[arg-type]
    layout = parse(data)
    dims, num_tokens = model.dims, settings.get("drop", len(model.tokenize(TEXT)))
    assert list(layout.positions) == list(range(num_tokens))  # type: ignore[call-overload]
    assert layout.slot == settings.get("slot", 0)
    assert [(rows.kind, rows.layer) for rows in layout.rows] == [
        (kind, layer) for kind in "KV" for layer in range(dims.n_layer)
    ]
    assert {rows.type_id for rows in layout.rows} == {type_id}
    assert layout.row_bytes == layout.num_tokens * dims.kv_elements_per_token() * 2
    frame = cut_frame(data, layout)
    assert len(frame) == len(data) - layout.row_bytes < 12 * layout.num_tokens + 800
    again = parse_frame(frame)
    assert (again.rows, again.num_bytes) == (layout.rows, len(data))
    contents = [elements(data, rows).tobytes() for rows in again.rows]
    assert rebuild(frame, again, contents) == data
    with pytest.raises(BlobError, match="not those of the frame"):
        rebuild(frame, again, contents[:-1])


def test_rows_are_the_keys_and_values_of_each_token(model: Model, blob: bytes) -> None:
    """A sequence that starts alike starts with the same rows; the next token's rows differ."""
    ids = model.tokenize(TEXT)
    with Context(model, ContextConfig(n_ctx=256)) as context:
        batch = Batch(len(ids), 1)
        batch.add_run([*ids[:-1], ids[-1] + 1], 0, 0, True)
        context.decode(batch)
        other = kv.save(context, 0)
    for mine, theirs in zip(parse(blob).rows, parse(other).rows, strict=True):
        left, right = elements(blob, mine), elements(other, theirs)
        assert left.shape == (len(ids), model.dims.n_head_kv * model.dims.head_dim)
        assert np.array_equal(left[:-1], right[:-1]) and not np.array_equal(left[-1], right[-1])


def test_an_empty_slot_has_a_blob_without_rows(model: Model) -> None:
    with Context(model, ContextConfig(n_ctx=256)) as context:
        empty = kv.save(context, 0)
    layout = parse(empty)
    assert (layout.num_tokens, layout.rows) == (0, ())
    assert rebuild(cut_frame(empty, layout), layout, []) == empty


@pytest.mark.parametrize("type_id", [1, 30])
def test_floats_go_through_16_bits_unchanged(type_id: int) -> None:
    raw = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    values = to_float32(raw, type_id)
    finite = np.isfinite(values)
    assert np.array_equal(from_float32(np.where(finite, values, 0), type_id)[finite], raw[finite])


def test_bf16_rounds_to_the_nearest_and_ties_to_even() -> None:
    one = 0x3F80
    step = 2.0**-7
    values = np.array([1, 1 + 0.4 * step, 1 + 0.5 * step, 1 + 0.6 * step, 1 + 1.5 * step, -1], np.float32)
    assert list(from_float32(values, 30)) == [one, one, one, one + 1, one + 2, one | 0x8000]


Spoil = Callable[[bytearray], object]
SPOILS: dict[str, tuple[Spoil, str]] = {
    "empty": (lambda b: b.clear(), "ends after 0 bytes"),
    "header": (lambda b: b.__delitem__(slice(8, None)), "ends after 8 bytes"),
    "cut": (lambda b: b.__delitem__(slice(-1, None)), "in the middle of a field"),
    "longer": (lambda b: b.extend(b"!!"), "2 bytes follow its end"),
    "more parts": (lambda b: struct.pack_into("<I", b, 8, 2), "in the middle of a field"),
    "more cells": (lambda b: struct.pack_into("<I", b, 12, 2**31), "in the middle of a field"),
    "owners": (lambda b: struct.pack_into("<I", b, 20, 2), "exactly one owner"),
    "position": (lambda b: struct.pack_into("<i", b, 16, -1), "position is negative"),
    "text": (lambda b: b.__setitem__(slice(None), b"abc" * 999), "not a saved sequence"),
}


@pytest.mark.parametrize("name", SPOILS)
def test_other_bytes_are_refused(blob: bytes, name: str) -> None:
    spoil, sentence = SPOILS[name]
    data = bytearray(blob)
    spoil(data)
    with pytest.raises(BlobError, match=sentence):
        parse(data)


def test_transposed_and_quantised_caches_are_refused(model: Model) -> None:
    with pytest.raises(BlobError, match="V is transposed; save from a context with flash attention"):
        parse(saved(model, type_k="f16", type_v="f16", flash_attn=False))
    quantised = saved(model, type_k="q8_0", type_v="q8_0")
    with pytest.raises(BlobError, match=r"saved as ggml type 8\. Only caches of bf16 and f16"):
        elements(quantised, parse(quantised).rows[0])
