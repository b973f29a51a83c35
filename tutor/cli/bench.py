"""`tutor bench URL`: load an OpenAI-compatible server and measure it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tutor.cli.bench_options import Finite, read_key, read_lengths, read_percentiles, read_rate, read_targets

if TYPE_CHECKING:
    from tutor.client.bench.driver import Progress
    from tutor.client.bench.result import Result
    from tutor.client.bench.session import Plan

FAILED, COULD_NOT_RUN, INTERRUPTED = 1, 3, 130
WIDEST, NARROWEST = 120, 50
DEFAULT_CONCURRENCY = 4
MOST_REQUESTS = 1_000_000
REDRAW = 0.2


@click.command(name="bench", short_help="Load a server and measure its latencies.")
@click.argument("url")
@click.option(
    "-n",
    "--requests",
    type=click.IntRange(1, MOST_REQUESTS),
    default=64,
    show_default=True,
    help="Requests to send.",
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
    callback=read_rate,
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
    "--duration",
    type=Finite(0, min_open=True),
    metavar="S",
    help="Send for at most S seconds, and at most -n requests.",
)
@click.option(
    "-i",
    "--input",
    "input_tokens",
    callback=read_lengths,
    default="128",
    show_default=True,
    metavar="TOKENS",
    help="Prompt length: 100, 50-200 (uniform) or 100~20 (mean~deviation).",
)
@click.option(
    "-o",
    "--output",
    "output_tokens",
    callback=read_lengths,
    default="64",
    show_default=True,
    metavar="TOKENS",
    help="Answer length, in the same way.",
)
@click.option(
    "--shared",
    type=Finite(0, 1),
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
@click.option(
    "--slo",
    "targets",
    callback=read_targets,
    metavar="ttft=MS,...",
    help="Targets for goodput: ttft, tpot, e2e.",
)
@click.option(
    "--percentiles",
    callback=read_percentiles,
    default="50,95,99",
    show_default=True,
    metavar="P,...",
    help="Which percentiles to print.",
)
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), default="chat", show_default=True)
@click.option("--model", "model_id", metavar="ID", help="Model to ask for (the first that the server lists).")
@click.option(
    "--api-key", envvar="OPENAI_API_KEY", callback=read_key, metavar="KEY", help="Or set OPENAI_API_KEY."
)
@click.option("--temperature", type=Finite(0), default=0.0, show_default=True)
@click.option(
    "--stop-at-end/--ignore-eos",
    "stop_at_end",
    default=False,
    help="Let the model end its answers, or always take the full length (default).",
)
@click.option("--no-cache-probe", is_flag=True, help="Do not send prompts twice before the run.")
@click.option(
    "--timeout",
    type=Finite(0, min_open=True),
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
    if save is not None and (hindrance := _hindrance(save)):
        click.echo(f"Cannot write {save}: {hindrance}.", err=True)
        ctx.exit(COULD_NOT_RUN)
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
    width = min(shutil.get_terminal_size().columns, WIDEST)
    click.echo(report(result, max(width - 1, NARROWEST)))
    drawn = "" if no_plot else plot(result, width, ascii_only=ascii_only)
    if drawn:
        click.echo(f"\n{drawn}")


def _hindrance(path: Path) -> str:
    """Why the file could not be written; better known before the run than after it."""
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "permission denied"
    return ""


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
            room = max(10, shutil.get_terminal_size().columns - 1)
            click.echo(f"\r\x1b[K{sentence[:room]}", nl=False, err=True)

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
