"""Every formula against a figure that was measured or published, or worked out by hand."""

from __future__ import annotations

import pytest

from tutor.curriculum import formulas as f

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("smollm2-135m", 134_515_008),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("qwen2.5-7b", 7_615_616_512),
    ],
)
def test_params_follow_from_the_shape(name: str, params: int) -> None:
    assert f.model(name).params == params


@pytest.mark.parametrize(
    ("name", "kv"),
    [
        ("smollm2-135m", 23_040),
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("qwen2.5-7b", 57_344),
    ],
)
def test_kv_bytes_per_token(name: str, kv: int) -> None:
    assert f.kv_bytes_per_token(name) == kv
    assert f.kv_bytes_per_token(name, "bf16", "bf16") == kv


@pytest.mark.parametrize(("kv_type", "mib"), [("f16", 22.50), ("q8_0", 11.95), ("q4_0", 6.33)])
def test_1024_cells_as_in_the_log_of_llama_cpp(kv_type: str, mib: float) -> None:
    """The log prints two decimals."""
    assert round(f.kv_bytes("smollm2-135m", 1024, kv_type, kv_type) / MIB, 2) == mib


def test_key_and_value_types_may_differ() -> None:
    mixed = f.kv_bytes_per_token("smollm2-135m", "q8_0", "f16")
    assert mixed == 30 * (192 // 32 * 34 + 192 * 2)
    assert f.kv_bytes_per_token("smollm2-135m", "f16", "q8_0") == mixed


def test_long_contexts() -> None:
    assert f.kv_bytes("llama-3.1-8b", 131_072) == 16 * GIB
    assert f.kv_bytes("llama-3.1-70b", 131_072) == 40 * GIB
    assert f.kv_bytes("qwen2.5-7b", 32_768) == 1.75 * GIB


def test_three_separate_sequences_of_512_cells() -> None:
    assert f.kv_bytes("smollm2-135m", 512, seqs=3) == 33.75 * MIB


def test_57_tokens_of_smollm2() -> None:
    assert f.kv_bytes("smollm2-135m", 57) == 1_313_280


@pytest.mark.parametrize(("asked", "cells"), [(0, 0), (1, 256), (256, 256), (257, 512), (1000, 1024)])
def test_padded_context(asked: int, cells: int) -> None:
    assert f.padded_context(asked) == cells


def test_block_formats_carry_a_scale() -> None:
    assert [f.type_bytes(t, 32) for t in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")] == [
        128,
        64,
        64,
        34,
        18,
        20,
    ]


def test_half_a_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="blocks of 32"):
        f.type_bytes("q4_0", 33)


def test_unknown_names_say_what_is_known() -> None:
    with pytest.raises(ValueError, match="smollm2-135m"):
        f.model("gpt-5")
    with pytest.raises(ValueError, match="h100"):
        f.gpu("h1000")
    with pytest.raises(ValueError, match="q8_0"):
        f.type_bytes("q3", 32)


def test_blocks_and_waste() -> None:
    assert [f.num_blocks(n, 16) for n in (0, 1, 16, 17, 1000)] == [0, 1, 1, 2, 63]
    assert f.tail_waste(1000, 16) == 8
    assert sum(f.num_blocks(n, 16) for n in (37, 5, 64)) == 8
    assert sum(f.tail_waste(n, 16) for n in (37, 5, 64)) == 22
    assert f.tail_waste(0, 16) == 0
    assert f.mean_tail_waste(16) == 7.5
    assert f.mean_tail_waste(128) == 63.5
    assert f.mean_tail_waste(16) == sum(f.tail_waste(n, 16) for n in range(1, 17)) / 16


def test_block_bytes() -> None:
    assert f.block_bytes("llama-3.1-8b", 16) == 2 * MIB
    assert f.block_bytes("smollm2-135m", 16) == 360 * 1024


def test_max_sequences_of_an_h100() -> None:
    weights = f.weight_bytes("llama-3.1-8b")
    kv = f.kv_bytes_per_token("llama-3.1-8b")
    hbm = f.gpu("h100").hbm_bytes
    assert f.max_sequences(hbm, 0.92, weights, 3e9, kv, 1) == 416_103
    assert f.max_sequences(hbm, 0.92, weights, 3e9, kv, 16) == 26_006
    assert f.max_sequences(hbm, 0.92, weights, 3e9, kv, 4096) == 101
    assert f.max_sequences(hbm, 0.92, weights, 3e9, kv, 32_768) == 12


def test_a_model_that_does_not_fit_serves_nobody() -> None:
    weights = f.weight_bytes("llama-3.1-70b")
    assert f.max_sequences(f.gpu("h100").hbm_bytes, 0.92, weights, 0, 327_680, 4096) == 0


def test_weight_bytes() -> None:
    assert round(f.weight_bytes("llama-3.1-8b") / 1e9, 2) == 16.06
    assert round(f.weight_bytes("llama-3.1-70b") / 1e9, 1) == 141.1
    assert round(f.weight_bytes("llama-3.1-70b", 5 / 8) / 1e9, 1) == 44.1


def test_where_the_parameters_are() -> None:
    assert f.embedding_params("smollm2-135m") == 49_152 * 576
    assert round(f.embedding_params("smollm2-135m") / 134_515_008, 3) == 0.210
    assert round(f.embedding_params("llama-3.1-8b") / 8_030_261_248, 3) == 0.131
    assert f.ffn_params("smollm2-135m") == 3 * 576 * 1536
    assert round(f.ffn_params("smollm2-135m") / f.block_params("smollm2-135m"), 2) == 0.75
    assert round(f.block_params("smollm2-135m") / 1e6, 2) == 3.54


def test_flops_per_token() -> None:
    assert f.flops_per_token("smollm2-135m") == 2 * 134_515_008
    assert round(f.flops_per_token("llama-3.1-8b") / 1e9, 1) == 15.0


def test_gpu_rows() -> None:
    """Ridge points and the single-user ceiling of an 8B model in bf16."""
    weights = f.weight_bytes("llama-3.1-8b")
    rows = {"a100": (153, 127), "h100": (295, 209), "h200": (206, 299), "b200": (292, 479), "l4": (403, 19)}
    for name, (ridge, ceiling) in rows.items():
        card = f.gpu(name)
        assert round(card.flops / card.bytes_per_second) == ridge
        assert round(card.bytes_per_second / weights) == ceiling


def test_the_cache_saves_most_of_the_work() -> None:
    assert f.tokens_with_cache(32, 64) == 95
    assert f.tokens_without_cache(32, 64) == 4_064
    assert f.tokens_without_cache(32, 64) == sum(32 + i for i in range(64))
    assert f.tokens_with_cache(5, 1) == f.tokens_without_cache(5, 1) == 5


@pytest.mark.parametrize(
    "call",
    [
        lambda: f.kv_bytes("smollm2-135m", -1),
        lambda: f.num_blocks(3, 0),
        lambda: f.tokens_with_cache(0, 4),
        lambda: f.tokens_without_cache(4, 0),
        lambda: f.padded_context(-1),
    ],
)
def test_impossible_sizes_are_errors(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match="must"):
        call()
