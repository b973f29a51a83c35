"""What the options of `tutor bench` mean. A wrong one is click's usage error (exit code 2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tutor.client.bench.lengths import Lengths
    from tutor.metrics.goodput import Targets


class Finite(click.FloatRange):
    """A number that is neither infinite nor nan; click's own range lets nan through."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def read_rate(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is not None and value.strip().lower() in ("inf", "infinity"):
        raise click.BadParameter("without --rate, as many requests are in flight as --concurrency says.")
    return None if value is None else float(Finite(0, min_open=True)(value, param, ctx))


def read_key(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A key out of a file often ends with a line end; what else does not print cannot be sent."""
    key = (value or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise click.BadParameter("a key has ASCII characters only.")
    return key or None


def read_lengths(ctx: click.Context, param: click.Parameter, value: str) -> Lengths:
    from tutor.client.bench.lengths import LengthError, parse_lengths

    try:
        return parse_lengths(value)
    except LengthError as error:
        raise click.BadParameter(str(error)) from error


def read_percentiles(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    try:
        asked = {float(part.strip().lstrip("pP")) for part in value.split(",")}
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers like 50,95,99.") from error
    if not all(0 < q <= 100 for q in asked):
        raise click.BadParameter("a percentile is above 0 and at most 100.")
    return tuple(sorted(asked))


def read_targets(ctx: click.Context, param: click.Parameter, value: str | None) -> Targets | None:
    """`ttft=500,tpot=50` in milliseconds, or `ttft:500` as vllm bench serve has it. No name, no limit."""
    from tutor.metrics.goodput import Targets

    if value is None:
        return None
    names = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e", "e2el": "e2e"}
    limits: dict[str, float] = {}
    for part in value.replace(":", "=").split(","):
        name, _, number = (text.strip().lower() for text in part.partition("="))
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if name not in names or not 0 < limit < math.inf:
            raise click.BadParameter(f"{part!r} is not ttft=MS, tpot=MS or e2e=MS, MS above 0.")
        if names[name] in limits:
            raise click.BadParameter(f"{name} has two targets.")
        limits[names[name]] = limit / 1e3
    return Targets(**limits)
