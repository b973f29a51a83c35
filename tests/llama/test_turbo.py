"""The vector quantiser: its codebook against theory, its error, its size, and what it refuses."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.llama.blob import BF16, from_float32, to_float32
from tutor.llama.turbo import Quantiser, lloyd_max, random_signs, rotation

# Max 1960, table I: the positive levels for a unit Gaussian, and the distortion they leave
LEVELS = {
    1: ([0.7980], 0.3634),
    2: ([0.4528, 1.510], 0.1175),
    3: ([0.2451, 0.7560, 1.344, 2.152], 0.03454),
    4: ([0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733], 0.009497),
}


def gaussian(count: int, size: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, size), dtype=np.float32)


def relative_error(original: np.ndarray, approximation: np.ndarray) -> float:
    return float(((original - approximation) ** 2).sum() / (original**2).sum())


@pytest.mark.parametrize("bits", LEVELS)
def test_the_codebook_is_the_published_one(bits: int) -> None:
    levels = lloyd_max(bits)
    positive, distortion = LEVELS[bits]
    assert np.allclose(levels[2 ** (bits - 1) :], positive, rtol=1e-3)
    assert levels == tuple(-level for level in reversed(levels))
    samples = np.array([NormalDist().inv_cdf((i + 0.5) / 50_000) for i in range(50_000)])
    nearest = np.array(levels)[np.abs(samples[:, None] - np.array(levels)).argmin(1)]
    assert ((samples - nearest) ** 2).mean() == pytest.approx(distortion, rel=0.01)


def test_the_rotation_keeps_lengths_and_spreads_one_channel_over_all() -> None:
    turn = rotation(64)
    assert np.array_equal(turn @ turn.T, 64 * np.eye(64))
    assert set(np.abs(turn[5])) == {1.0}
    assert set(random_signs(64)) == {-1.0, 1.0}
    for size in (0, 3, 48):
        with pytest.raises(ValueError, match="power of two"):
            rotation(size)


@pytest.mark.parametrize("bits", LEVELS)
@pytest.mark.parametrize("size", [64, 128])
def test_error_and_size_are_what_the_theory_says(bits: int, size: int) -> None:
    quantiser = Quantiser(size, bits)
    vectors = gaussian(2000, size) * np.linspace(0.1, 90, 2000, dtype=np.float32)[:, None]
    packed = quantiser.pack(vectors)
    assert len(packed) == quantiser.packed_bytes(2000)
    assert len(packed) * 8 / vectors.size == quantiser.bits_per_element == bits + 16 / size
    # Lloyd-Max leaves D; stretching what it gives to the full length costs a little more. 64 elements of a
    # vector of given length have lighter tails than a Gaussian, so that less is lost in them.
    kept_length = 2 - 2 * math.sqrt(1 - LEVELS[bits][1])
    error = relative_error(vectors, quantiser.unpack(packed, 2000))
    assert kept_length * (0.9 if size == 64 else 0.94) < error < kept_length * 1.03


def test_outlier_channels_cost_nothing_after_the_rotation() -> None:
    """A channel 14 times the others, as in the keys of real models, ruins a grid but not this."""
    vectors = gaussian(500)
    vectors[:, 7] *= 14
    quantiser = Quantiser(64, 3)
    low, high = vectors.min(-1, keepdims=True), vectors.max(-1, keepdims=True)
    grid = np.round((vectors - low) / (high - low) * 7) / 7 * (high - low) + low
    theory = LEVELS[3][1]
    ours = np.delete(vectors - quantiser.unpack(quantiser.pack(vectors), 500), 7, axis=1)
    theirs = np.delete(vectors - grid, 7, axis=1)
    assert relative_error(vectors, quantiser.unpack(quantiser.pack(vectors), 500)) < 1.4 * theory
    assert (ours**2).sum() < 0.5 * (theirs**2).sum()


def test_zero_vectors_no_vectors_and_an_odd_number_of_them() -> None:
    quantiser = Quantiser(64, 3)
    vectors = gaussian(67)
    vectors[3] = 0
    back = quantiser.unpack(quantiser.pack(vectors), 67)
    assert not back[3].any() and back[4].any()
    assert quantiser.pack(vectors[:0]) == b"" and quantiser.unpack(b"", 0).shape == (0, 64)


def test_same_bytes_every_time_and_each_vector_by_itself() -> None:
    quantiser = Quantiser(64, 4)
    vectors = gaussian(130)
    assert quantiser.pack(vectors) == Quantiser(64, 4).pack(vectors.copy())
    together = quantiser.unpack(quantiser.pack(vectors), 130)
    alone = quantiser.unpack(quantiser.pack(vectors[129:]), 1)
    assert np.allclose(together[129:], alone, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 70), st.integers(0, 2**32 - 1), st.floats(-3, 3.5))
def test_lengths_survive_and_errors_are_bounded(bits: int, count: int, seed: int, magnitude: float) -> None:
    vectors = gaussian(count, seed=seed) * np.float32(10**magnitude)
    quantiser = Quantiser(64, bits)
    back = quantiser.unpack(quantiser.pack(vectors), count)
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.allclose(np.linalg.norm(back, axis=1), lengths, rtol=1e-3)  # f16 has 11 bits
    # The levels nearest to the turned vector err by this much; giving it its length again at most doubles it.
    turned = vectors @ rotation(64)
    turned *= 8 / np.linalg.norm(turned, axis=1)[:, None]
    nearest = np.abs(turned[:, :, None] - np.array(lloyd_max(bits))).min(axis=2)
    at_most = 2 * np.linalg.norm(nearest, axis=1) / 8 * lengths
    assert (np.linalg.norm(back - vectors, axis=1) < at_most * 1.001).all()


@pytest.mark.parametrize("bits", LEVELS)
def test_what_was_decoded_finds_its_codes_again(bits: int) -> None:
    """Eight passes with values rounded to bf16 between them, as the cache does: no error is added."""
    quantiser, vectors = Quantiser(64, bits), gaussian(2000)
    back = quantiser.unpack(quantiser.pack(vectors), 2000)
    first = relative_error(vectors, back)
    for _ in range(7):
        rounded = to_float32(from_float32(back, BF16), BF16)
        back = quantiser.unpack(quantiser.pack(rounded), 2000)
    assert relative_error(vectors, back) < 1.001 * first


@pytest.mark.parametrize("spoil", [np.nan, np.inf, -np.inf, 1e5])
def test_vectors_that_a_16_bit_norm_cannot_hold(spoil: float) -> None:
    vectors = gaussian(4)
    vectors[2, 9] = spoil
    with pytest.raises(ValueError, match="not finite, or too long"):
        Quantiser(64, 4).pack(vectors)


def test_what_it_cannot_be_made_for() -> None:
    for size, bits, sentence in (
        (64, 0, "0 bits"),
        (64, 5, "5 bits"),
        (4, 2, "whole bytes"),
        (24, 2, "power"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Quantiser(size, bits)
    with pytest.raises(ValueError, match="99 bytes do not hold 3 vectors"):
        Quantiser(64, 2).unpack(bytes(99), 3)
