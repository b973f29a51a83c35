from __future__ import annotations

import pytest

from tutor.curriculum.formatters import FILTERS, commas, fixed, ms, pct, plain


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (16.0, "16"),
        (22.5, "22.5"),
        (6.328125, "6.33"),
        (141.107, "141.1"),
        (100.0, "100"),
        (1234567.0, "1,234,567"),
        (0.27, "0.27"),
        (0.00414, "0.0041"),
        (-3.456, "-3.46"),
    ],
)
def test_plain(value: float, shown: str) -> None:
    assert plain(value) == shown


def test_sizes_carry_their_unit() -> None:
    assert FILTERS["mib"](23_592_960) == "22.5 MiB"
    assert FILTERS["mib"](23_592_960, 2) == "22.50 MiB"
    assert FILTERS["gib"](16 * 2**30) == "16 GiB"
    assert FILTERS["kib"](23_040) == "22.5 KiB"
    assert FILTERS["mb"](96_576_768) == "96.58 MB"
    assert FILTERS["gb"](4_294_967_296) == "4.29 GB"


def test_small_formatters() -> None:
    assert commas(1_313_280) == "1,313,280"
    assert commas(42.78) == "42.78"
    assert pct(0.325) == "32.5%"
    assert pct(0.5, 0) == "50%"
    assert fixed(0.5) == "0.50"
    assert fixed(42.779, 1) == "42.8"
    assert ms(0.01234) == "12.3 ms"
