"""A small load on the scripted server."""

from __future__ import annotations

from typing import Any

from scripted_openai import ScriptedServer

from tutor.client.bench.lengths import parse_lengths
from tutor.client.bench.result import Result
from tutor.client.bench.session import Plan, bench
from tutor.client.bench.workload import Load


def load(**changes: object) -> Load:
    settings: dict[str, object] = {
        "arrivals": "closed", "requests": 12, "concurrency": 3, "input_tokens": parse_lengths("40"),
        "output_tokens": parse_lengths("6"),
    }  # fmt: skip
    return Load(**(settings | changes))  # type: ignore[arg-type]


async def run(server: ScriptedServer, asked: Load | None = None, **plan: Any) -> Result:
    return await bench(Plan(url=server.url, load=asked or load(), **({"probe": False} | plan)))
