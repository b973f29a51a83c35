"""The sampling settings: ranges, sentences, and what counts as plain argmax."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tutor.serving.errors import ConfigError
from tutor.serving.sampling import MAX_LOGPROBS, MAX_SEED, SamplingParams

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value", "valid_range"),
    [
        ("temperature", -0.1, "0 (greedy) or more"),
        ("temperature", NAN, "0 (greedy) or more"),
        ("temperature", INFINITE, "0 (greedy) or more"),
        ("top_k", -1, "0 (off) or more"),
        ("top_p", 0.0, "above 0 and at most 1 (off)"),
        ("top_p", 1.01, "above 0 and at most 1 (off)"),
        ("top_p", NAN, "above 0 and at most 1 (off)"),
        ("min_p", -0.1, "between 0 (off) and 1"),
        ("min_p", 1.1, "between 0 (off) and 1"),
        ("min_p", NAN, "between 0 (off) and 1"),
        ("seed", -1, "between 0 and 2^64 - 1"),
        ("seed", MAX_SEED + 1, "between 0 and 2^64 - 1"),
        ("repetition_penalty", 0.0, "above 0; 1 is off"),
        ("repetition_penalty", INFINITE, "above 0; 1 is off"),
        ("repetition_penalty", NAN, "above 0; 1 is off"),
        ("presence_penalty", 2.1, "between -2 and 2; 0 is off"),
        ("presence_penalty", NAN, "between -2 and 2; 0 is off"),
        ("frequency_penalty", -2.1, "between -2 and 2; 0 is off"),
        ("penalty_last_n", -2, "-1 (all tokens), 0 (off) or a number of tokens"),
        ("logprobs", -1, "0 (off) to 20"),
        ("logprobs", MAX_LOGPROBS + 1, "0 (off) to 20"),
    ],
)
def test_a_value_outside_its_range_is_named_with_the_range(name: str, value: float, valid_range: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SamplingParams(**{name: value}).check()
    assert str(caught.value) == f"{name} is {value}. It has to be {valid_range}."


@pytest.mark.parametrize("stop", ["END", ["END"], ("END", ""), (b"END",), (3,)])
def test_stop_is_a_tuple_of_strings_with_text(stop: object) -> None:
    with pytest.raises(ConfigError, match="stop"):
        SamplingParams(stop=stop).check()  # type: ignore[arg-type]


def test_the_ends_of_the_ranges_are_valid() -> None:
    SamplingParams().check()
    SamplingParams(0.0, 0, 1.0, 0.0, 0, 1e-9, -2.0, -2.0, -1, 0, (), True).check()
    SamplingParams(1e9, 10**6, 1e-9, 1.0, MAX_SEED, 9.0, 2.0, 2.0, 0, MAX_LOGPROBS, ("a", "\n\n")).check()


def test_the_settings_are_frozen_and_compare_by_value() -> None:
    params = SamplingParams(temperature=0.8, stop=("a",))
    with pytest.raises(FrozenInstanceError):
        params.temperature = 1.0  # type: ignore[misc]
    assert not hasattr(params, "__dict__")
    assert params == SamplingParams(temperature=0.8, stop=("a",))
    assert len({params, SamplingParams(temperature=0.8, stop=("a",))}) == 1


@pytest.mark.parametrize(
    ("params", "has_penalties", "is_plain_greedy"),
    [
        (SamplingParams(), False, True),
        (SamplingParams(top_k=3, top_p=0.5, min_p=0.1, seed=4, stop=("a",)), False, True),
        (SamplingParams(temperature=0.1), False, False),
        (SamplingParams(logprobs=1), False, False),
        (SamplingParams(repetition_penalty=1.1), True, False),
        (SamplingParams(repetition_penalty=1.1, penalty_last_n=0), False, True),
        (SamplingParams(presence_penalty=0.1, penalty_last_n=0), True, False),
        (SamplingParams(frequency_penalty=-0.1), True, False),
    ],
)
def test_what_a_draw_has_to_look_at(
    params: SamplingParams, has_penalties: bool, is_plain_greedy: bool
) -> None:
    assert params.has_penalties is has_penalties
    assert params.is_plain_greedy is is_plain_greedy
