"""`tutor serve`: the engine behind HTTP, for clients of OpenAI, llama.cpp and Ollama."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, get_args

import click

from tutor.cli.serve_trace import TraceFile
from tutor.endpoint.engine_client import HANG_LIMIT
from tutor.endpoint.messages import Settings
from tutor.endpoint.server import Server, ServerError, ServerOptions
from tutor.llama.config import KvType, Mode
from tutor.llama.errors import EngineError
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ConfigError

COULD_NOT_RUN = 3
SHARED_BLOCKS, EXACT_BLOCKS = 512, 128  # in exact mode every slot has a cache of its own


def default_threads() -> int:
    """One core is left to the server itself and to its clients."""
    return max(1, (os.cpu_count() or 2) - 1)


def settings_of(model: str | None, given: dict[str, Any]) -> Settings:
    """Settings from the command's options. Raises ConfigError."""
    mode: Mode = "exact" if given["exact"] else "shared"
    shared = mode == "shared"
    threads = given["threads"]
    blocks = given["num_blocks"] or (SHARED_BLOCKS if shared else EXACT_BLOCKS)
    config = EngineConfig(
        max_num_seqs=given["max_num_seqs"],
        max_num_batched_tokens=given["max_num_batched_tokens"],
        block_size=given["block_size"],
        num_blocks=blocks,
        admission=given["admission"],
        prefix_caching=given["prefix_cache"] and shared,
        shared_cells=shared,
        max_parked=min(blocks, 256 - given["max_num_seqs"]),
    )
    return Settings(
        engine=config,
        model=model,
        mode=mode,
        kv_type=given["kv_type"],
        threads=threads or default_threads(),
        adaptive_threads=threads is None,
        max_model_len=given["max_model_len"],
        speculate=given["speculate"],
    )


@click.command(name="serve", short_help="Serve the model over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any free one."
)
@click.option("--api-key", envvar="TUTOR_API_KEY", default="", help="Key that clients have to send.")
@click.option(
    "--served-model-name", "model_name", default="", help="Name of the model (default: its file's)."
)
@click.option("--max-num-seqs", type=click.IntRange(1, 128), default=8, show_default=True, help="Slots.")
@click.option(
    "--max-num-batched-tokens",
    type=click.IntRange(1, 8192),
    default=128,
    show_default=True,
    help="Tokens a step may compute.",
)
@click.option("--num-blocks", type=click.IntRange(1, 65536), help="KV blocks (512; with --exact 128 a slot).")
@click.option(
    "--block-size", type=click.IntRange(1, 256), default=16, show_default=True, help="Tokens a block."
)
@click.option("--max-model-len", type=click.IntRange(0), default=0, help="Most tokens of prompt and answer.")
@click.option(
    "--prefix-cache/--no-prefix-cache", default=True, show_default=True, help="Share equal prefixes."
)
@click.option("--kv-type", type=click.Choice(get_args(KvType)), default="bf16", show_default=True)
@click.option("--exact", is_flag=True, help="Logits that do not depend on the batch; shares nothing.")
@click.option(
    "--admission",
    type=click.Choice(("fcfs", "shortest", "longest_prefix")),
    default="fcfs",
    show_default=True,
    help="Who is admitted next.",
)
@click.option(
    "--speculate", type=click.IntRange(0, 16), default=0, help="Longest draft of prompt lookup (0: off)."
)
@click.option("--threads", type=click.IntRange(1, 256), help="Threads (default: as many as pay off).")
@click.option("--max-waiting", type=click.IntRange(0), default=64, show_default=True, help="Then 429.")
@click.option(
    "--grace", type=click.FloatRange(0.0), default=5.0, show_default=True, help="Seconds at the end."
)
@click.option(
    "--hang-limit", type=click.FloatRange(0.0), default=HANG_LIMIT, show_default=True,
    help="Seconds without a step after which the engine is started again (0: never).",
)  # fmt: skip
@click.option("--trace", "trace_path", type=click.Path(path_type=Path), help="Save the trace to this file.")
@click.option("--watch", is_flag=True, help="Show the engine's panels while clients talk to it.")
@click.pass_obj
def command(obj: dict[str, Any], /, trace_path: Path | None, watch: bool, **given: Any) -> None:
    """Serve the model over HTTP, in the dialects of OpenAI, llama-server and Ollama.

    Exit codes: 0 stopped by you (Ctrl-C, SIGTERM, or q with --watch), 2 wrong usage, 3 it could not run: the
    model cannot be loaded, the port is taken, or --watch has no terminal.
    """
    try:
        settings = settings_of(obj["model"], given)
        options = ServerOptions(
            given["host"], given["port"], given["api_key"], given["max_waiting"], given["grace"],
            given["model_name"], given["hang_limit"],
        )  # fmt: skip
    except (ConfigError, ServerError) as error:
        raise click.UsageError(str(error)) from error
    trace = TraceFile(trace_path, _say) if trace_path is not None else None
    try:
        if watch:
            from tutor.cli.serve_watch import watch_server

            sys.exit(watch_server(settings, options, trace, obj["ascii"], obj["fps"]))
        server = Server(settings, options, on_ready=_ready, on_death=_died, sink=trace)
        asyncio.run(server.run())
    except (EngineError, ServerError) as error:
        click.echo(str(error), err=True)
        sys.exit(COULD_NOT_RUN)
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
    finally:
        if trace is not None:
            trace.close()


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)


def _ready(url: str) -> None:
    click.echo(f"Serving at {url} (OpenAI: {url}/v1). Ctrl-C stops.")


def _died(sentence: str) -> None:
    click.echo(f"{sentence} It is started again.", err=True)
