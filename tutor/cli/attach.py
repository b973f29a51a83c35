"""`tutor attach URL`: watch a running server by its own metrics."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from textual.screen import Screen

    from tutor.client.attach.views import ServerView
    from tutor.ui.services import Services

COULD_NOT_RUN = 3
TIMEOUT = 5.0


@click.command(name="attach", short_help="Watch a running server by its own metrics.")
@click.argument("url")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two polls.",
)
@click.option(
    "--window",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Rates and percentiles cover so many seconds.",
)
@click.option(
    "-n", "--polls", type=click.IntRange(1), metavar="N", help="Print N polls and end; not full-screen."
)
@click.option("--plain", is_flag=True, help="Print each poll as text (done anyway without a terminal).")
@click.option("--json", "as_json", is_flag=True, help="Print each poll as one line of JSON.")
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="Or set OPENAI_API_KEY.")
@click.option("--model", default="", metavar="NAME", help="One of the models that a llama-server routes to.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    url: str,
    interval: float,
    window: float,
    polls: int | None,
    plain: bool,
    as_json: bool,
    api_key: str | None,
    model: str,
) -> None:
    """Watch the vLLM, SGLang, llama-server or `tutor serve` at URL. Nothing is sent to it but GET.

    Its metrics are polled: requests running and waiting, KV cache, prefix cache, preemptions, latencies
    (percentiles are estimated from its histogram buckets), slots where it tells them.

    URL is where the engine listens, as in 127.0.0.1:8000; /v1 and /metrics at its end are passed over.

    Exit codes: 0 done, 2 wrong usage, 3 the server never answered or has no metrics.
    """
    from tutor.client.http import AddressError, base_url

    try:
        root = base_url(_without_page(url))
    except AddressError as error:
        raise click.UsageError(str(error)) from error
    if not (plain or as_json or polls) and _can_show():
        ctx.exit(_full_screen(ctx.obj or {}, root, api_key, interval, window, model))
    try:
        last = asyncio.run(_print_polls(root, api_key, interval, window, polls, as_json, model))
    except KeyboardInterrupt:
        ctx.exit(0)
    ctx.exit(0 if last.status in ("ok", "silent") else COULD_NOT_RUN)


def _without_page(url: str) -> str:
    """A page's address as copied from a browser or a client, down to the server's own."""
    return re.sub(r"/(metrics|v1/.*)/?$", "", url.strip())


def _can_show() -> bool:
    """Whether there is a terminal that can place a cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _print_polls(
    root: str,
    api_key: str | None,
    interval: float,
    window: float,
    polls: int | None,
    as_json: bool,
    model: str,
) -> ServerView:
    """Poll and print; without a number of polls, for ever. Ends at once when nothing answers the first."""
    import msgspec

    from tutor.client.attach.plain import plain
    from tutor.client.attach.watcher import Watcher
    from tutor.client.http import make_client

    async with make_client(root, api_key, TIMEOUT) as client:
        watcher = Watcher(client, root, window, model=model)
        done = 0
        while True:
            view = await watcher.poll()
            done += 1
            click.echo(json.dumps(msgspec.to_builtins(view)) if as_json else plain(view) + "\n")
            sys.stdout.flush()
            if done == polls or (done == 1 and view.status == "starting"):
                return view
            await asyncio.sleep(interval)


def _full_screen(
    obj: dict[str, Any], root: str, api_key: str | None, interval: float, window: float, model: str
) -> int:
    from tutor.cli.app import run_app

    def open_on(services: Services) -> Screen[None]:
        from tutor.ui.screens.attach import AttachScreen

        return AttachScreen(services, root, api_key=api_key, interval=interval, window=window, model=model)

    return run_app(
        obj.get("model"),
        obj.get("workspace"),
        bool(obj.get("ascii")),
        open_on=open_on,
        fps=obj.get("fps", 10),
    )
