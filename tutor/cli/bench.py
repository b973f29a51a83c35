"""`tutor bench URL`: load an OpenAI-compatible server and measure it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tutor.client.bench.driver import Progress
    from tutor.client.bench.lengths import Lengths
    from tutor.client.bench.result import Result
    from tutor.client.bench.session import Plan
    from tutor.metrics.goodput import Targets

FAILED, COULD_NOT_RUN, INTERRUPTED = 1, 3, 130
DEFAULT_CONCURRENCY = 4
REDRAW = 0.2


def _length(ctx: click.Context, param: click.Parameter, value: str) -> Lengths:
    from tutor.client.bench.lengths import LengthError, parse_lengths

    try:
        return parse_lengths(value)
    except LengthError as error:
        raise click.BadParameter(str(error)) from error


def _percentiles(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    try:
        asked = {float(part) for part in value.split(",")}
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers like 50,95,99.") from error
    if not all(0 < q <= 100 for q in asked):
        raise click.BadParameter("a percentile is above 0 and at most 100.")
    return tuple(sorted(asked))


def _targets(ctx: click.Context, param: click.Parameter, value: str | None) -> Targets | None:
    """`ttft=500,tpot=50` in milliseconds; one that is not named has no limit."""
    from tutor.metrics.goodput import Targets

    if value is None:
        return None
    limits = {"ttft": float("inf"), "tpot": float("inf")}
    for part in value.split(","):
        name, _, number = part.partition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if name.strip() not in limits or not limit > 0:
            raise click.BadParameter(f"{part!r} is not ttft=MS or tpot=MS.")
        limits[name.strip()] = limit / 1e3
    return Targets(limits["ttft"], limits["tpot"])


@click.command(name="bench", short_help="Load a server and measure its latencies.")
@click.argument("url")
@click.option(
    "-n", "--requests", type=click.IntRange(1), default=64, show_default=True, help="Requests to send."
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1),
    metavar="C",
    help="Closed loop: so many at a time (4). With --rate: the most in flight.",
)
@click.option(
    "-r",
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="R",
    help="Open loop: R requests a second, whether the server keeps up or not.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant"]),
    default="poisson",
    show_default=True,
    help="How the requests of an open loop are spaced.",
)
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), metavar="S", help="Send for at most S seconds."
)
@click.option(
    "-i",
    "--input",
    "input_tokens",
    callback=_length,
    default="128",
    show_default=True,
    metavar="TOKENS",
    help="Prompt length: 100, 50-200 (uniform) or 100~20 (mean~deviation).",
)
@click.option(
    "-o",
    "--output",
    "output_tokens",
    callback=_length,
    default="64",
    show_default=True,
    metavar="TOKENS",
    help="Answer length, in the same way.",
)
@click.option(
    "--shared",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Share of each prompt that all prompts begin with.",
)
@click.option(
    "-w", "--warmup", type=click.IntRange(0), metavar="N", help="Requests before the clock starts (C)."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Prompts, lengths and times."
)
@click.option("--slo", "targets", callback=_targets, metavar="ttft=MS,tpot=MS", help="Targets for goodput.")
@click.option(
    "--percentiles",
    callback=_percentiles,
    default="50,95,99",
    show_default=True,
    metavar="P,...",
    help="Which percentiles to print.",
)
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), default="chat", show_default=True)
@click.option("--model", "model_id", metavar="ID", help="Model to ask for (the first that the server lists).")
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="Or set OPENAI_API_KEY.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True)
@click.option(
    "--stop-at-end/--ignore-eos",
    "stop_at_end",
    default=False,
    help="Let the model end its answers, or always take the full length (default).",
)
@click.option("--no-cache-probe", is_flag=True, help="Do not send prompts twice before the run.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Seconds without a byte until a request has failed.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, with the keys of vllm bench serve."
)
@click.option("--details", is_flag=True, help="JSON also has each request's times and text.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the JSON here.",
)
@click.option("--no-plot", is_flag=True, help="Do not draw tokens a second over time.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    url: str,
    as_json: bool,
    details: bool,
    save: Path | None,
    no_plot: bool,
    **asked: object,
) -> None:
    """Send requests to the OpenAI-compatible server at URL and measure TTFT, TPOT, ITL and E2E.

    Without --rate it is a closed loop: a new request leaves when one is answered. With --rate it is an open
    loop: requests leave when they are due. Ctrl-C ends the run and prints what was measured so far.

    Exit codes: 0 all requests went well, 1 some failed, 2 wrong usage, 3 could not run, 130 interrupted.
    """
    from tutor.client.bench.session import bench
    from tutor.client.http import ClientError

    plan = _plan(url, asked)
    show = _Progress(enabled=sys.stderr.isatty())
    try:
        result = asyncio.run(bench(plan, show.say, show.change))
    except ClientError as error:
        show.clear()
        click.echo(str(error), err=True)
        ctx.exit(COULD_NOT_RUN)
    except KeyboardInterrupt:
        show.clear()
        click.echo("Stopped before the load began: there is no result.", err=True)
        ctx.exit(INTERRUPTED)
    show.clear()
    _print(result, as_json, details, ascii_only=bool((ctx.obj or {}).get("ascii")), no_plot=no_plot)
    if save is not None and not _write(result, details, save):
        ctx.exit(COULD_NOT_RUN)
    ctx.exit(_code(result))


def _plan(url: str, asked: dict[str, object]) -> Plan:
    """The options as a plan. UsageError for an address that is none."""
    import msgspec

    from tutor.client.bench.session import Plan
    from tutor.client.bench.workload import Load
    from tutor.client.http import AddressError, base_url

    try:
        root = base_url(url)
    except AddressError as error:
        raise click.UsageError(str(error)) from error
    rate = asked["rate"]
    concurrency = asked["concurrency"] or (DEFAULT_CONCURRENCY if rate is None else None)
    warmup = asked["warmup"] if asked["warmup"] is not None else concurrency or DEFAULT_CONCURRENCY
    load = msgspec.convert(
        {
            **{name: asked[name] for name in ("requests", "rate", "input_tokens", "output_tokens", "shared",
                                              "seed", "duration", "temperature")},
            "arrivals": "closed" if rate is None else asked["arrivals"],
            "concurrency": concurrency,
            "warmup": warmup,
            "ignore_eos": not asked["stop_at_end"],
        },
        Load,
        from_attributes=True,
    )  # fmt: skip
    return msgspec.convert(
        {
            "url": root, "load": load, "model": asked["model_id"], "probe": not asked["no_cache_probe"],
            **{name: asked[name] for name in ("endpoint", "api_key", "timeout", "percentiles", "targets")},
        },
        Plan,
        from_attributes=True,
    )  # fmt: skip


def _print(result: Result, as_json: bool, details: bool, *, ascii_only: bool, no_plot: bool) -> None:
    from tutor.client.bench.plot import plot
    from tutor.client.bench.report import report
    from tutor.client.bench.vllm_keys import as_json as to_json

    if as_json:
        click.echo(json.dumps(to_json(result, details=details), indent=2))
        return
    click.echo(report(result))
    drawn = (
        "" if no_plot else plot(result, min(shutil.get_terminal_size().columns, 120), ascii_only=ascii_only)
    )
    if drawn:
        click.echo(f"\n{drawn}")


def _write(result: Result, details: bool, path: Path) -> bool:
    from tutor.client.bench.vllm_keys import as_json

    try:
        path.write_text(json.dumps(as_json(result, details=details), indent=2) + "\n")
    except OSError as error:
        click.echo(f"Cannot write {path}: {error.strerror}.", err=True)
        return False
    click.echo(f"result: {path}", err=True)
    return True


def _code(result: Result) -> int:
    if result.run.interrupted:
        return INTERRUPTED
    if not result.completed:
        return COULD_NOT_RUN
    return FAILED if result.failed else 0


class _Progress:
    """One line on stderr that is drawn over; nothing when stderr is no terminal."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._drawn_at = 0.0

    def say(self, sentence: str) -> None:
        if self._enabled:
            click.echo(f"\r\x1b[K{sentence[:78]}", nl=False, err=True)

    def change(self, progress: Progress) -> None:
        now = time.monotonic()
        if not self._enabled or now - self._drawn_at < REDRAW:
            return
        self._drawn_at = now
        failed = f", {progress.failed} failed" if progress.failed else ""
        self.say(
            f"{progress.done}/{progress.planned} done{failed}, {progress.in_flight} in flight, "
            f"{progress.tokens / max(progress.seconds, 1e-9):.0f} tokens/s, {progress.seconds:.0f} s "
            "(Ctrl-C ends)"
        )

    def clear(self) -> None:
        self.say("")
