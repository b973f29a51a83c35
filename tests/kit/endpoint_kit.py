"""A real server with the real model in a thread of its own, for the tests of the endpoint."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import httpx2

from tutor.endpoint.messages import Settings
from tutor.endpoint.server import Server, ServerOptions
from tutor.serving.config import EngineConfig
from tutor.trace.events import TraceHeader, TraceRecord

LIMIT = 60.0
Value = TypeVar("Value")


def wait_for(condition: Callable[[], Value], limit: float = LIMIT) -> Value:
    """Poll until the condition is true; fails after `limit` seconds."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it did not come true in time"
        threading.Event().wait(0.01)


@dataclass
class Running:
    """A server and the records of its trace (of the engine's latest life)."""

    settings: Settings
    options: ServerOptions
    traced: bool = False
    headers: list[TraceHeader] = field(default_factory=list)
    records: list[TraceRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deaths: list[str] = []
        self._ready = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._life = self._pool.submit(lambda: asyncio.run(self._serve()))
        self._life.add_done_callback(lambda _life: self._ready.set())
        assert self._ready.wait(LIMIT)
        if self._life.done():
            self._life.result()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = Server(
            self.settings, self.options, on_ready=lambda _url: self._ready.set(),
            on_death=self.deaths.append, sink=self._sink if self.traced else None,
        )  # fmt: skip
        await self.server.run()

    def _sink(self, header: TraceHeader, records: list[TraceRecord]) -> None:
        if not records:
            self.headers.append(header)
            self.records.clear()
        self.records += records

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def engine_pid(self) -> int:
        process = self.server.engine._process
        assert process is not None
        return process.pid

    def metric(self, name: str, **labels: str) -> float:
        value = self.server.observer.registry.get_sample_value(
            name, {"model_name": self.server.service.model_name, "engine": "0", **labels}
        )
        return 0.0 if value is None else value

    def is_empty(self) -> bool:
        """No request, no block in use, none waiting, by the HTTP side and by the engine."""
        stats, engine = self.server.observer.latest, self.server.engine
        held = (stats.num_running, stats.num_waiting, stats.num_used_blocks, engine.in_flight.num_samples)
        return held == (0, 0, 0, 0) and engine.in_flight.is_empty

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=LIMIT)

    def stop(self) -> None:
        """End as after SIGTERM; raises what went wrong in the server's thread."""
        if not self._life.done():
            self.loop.call_soon_threadsafe(self.server.stop)
        self._life.result(LIMIT)
        self._pool.shutdown()


Start = Callable[..., Running]


def settings_for(*, exact: bool = False, slots: int = 4, blocks: int = 256, **more: object) -> Settings:
    config = EngineConfig(
        max_num_seqs=slots, max_num_batched_tokens=128, num_blocks=blocks,
        prefix_caching=not exact, shared_cells=not exact, max_parked=min(blocks, 128),
    )  # fmt: skip
    return Settings(engine=config, mode="exact" if exact else "shared", **more)  # type: ignore[arg-type]
