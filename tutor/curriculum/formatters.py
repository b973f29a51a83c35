"""How numbers look in lesson text: the Jinja filters. Each takes a number and returns a string."""

from __future__ import annotations

from collections.abc import Callable

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30


def plain(value: float, digits: int | None = None) -> str:
    """A number for reading: thousands commas, at most two decimals, no trailing zeros.

    From 100 on one decimal is enough; below 0.01 two significant digits are kept. With `digits`
    exactly that many decimals are shown.
    """
    if digits is not None:
        return f"{value:,.{digits}f}"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.01:
        return f"{value:.2g}"
    text = f"{value:,.{1 if size >= 100 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_unit(divisor: float, unit: str) -> Callable[..., str]:
    def show(value: float, digits: int | None = None) -> str:
        return f"{plain(value / divisor, digits)} {unit}"

    return show


def commas(value: float) -> str:
    """1234567 -> "1,234,567"; a fraction keeps at most two decimals."""
    return f"{value:,}" if isinstance(value, int) else plain(value)


def pct(value: float, digits: int = 1) -> str:
    """0.21 -> "21.0%"."""
    return f"{value * 100:,.{digits}f}%"


def fixed(value: float, digits: int = 2) -> str:
    """Always `digits` decimals: 0.5 -> "0.50"."""
    return f"{value:,.{digits}f}"


def ms(value: float, digits: int = 1) -> str:
    """Seconds -> "12.3 ms"."""
    return f"{value * 1e3:,.{digits}f} ms"


FILTERS: dict[str, Callable[..., str]] = {
    "kib": _with_unit(_KIB, "KiB"),
    "mib": _with_unit(_MIB, "MiB"),
    "gib": _with_unit(_GIB, "GiB"),
    "mb": _with_unit(1e6, "MB"),
    "gb": _with_unit(1e9, "GB"),
    "commas": commas,
    "pct": pct,
    "fixed": fixed,
    "ms": ms,
}
