"""Whether the client itself was too slow: how late its event loop was, how much CPU it took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from tutor.metrics.summary import percentile

TICK = 0.02


class ClientLoad(msgspec.Struct, frozen=True):
    """`cpu_share`: CPU seconds of this process a wall second (1 is one core full).

    Lags are seconds by which the event loop woke up too late.
    """

    cpu_share: float
    lag_median: float
    lag_p95: float
    lag_p99: float
    lag_max: float


class Watchdog:
    """Use as `async with`; `load` is there afterwards."""

    def __init__(self) -> None:
        self.lags: list[float] = []
        self.load = ClientLoad(0.0, 0.0, 0.0, 0.0, 0.0)

    async def __aenter__(self) -> Watchdog:
        self._started = time.perf_counter()
        self._cpu = time.process_time()
        self._task = asyncio.create_task(self._watch())
        return self

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK)
            self.lags.append(max(0.0, time.perf_counter() - before - TICK))

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        wall = time.perf_counter() - self._started
        self.load = _load(self.lags, (time.process_time() - self._cpu) / wall)


def _load(lags: Sequence[float], cpu_share: float) -> ClientLoad:
    if not lags:
        return ClientLoad(cpu_share, 0.0, 0.0, 0.0, 0.0)
    return ClientLoad(cpu_share, *(percentile(lags, q) for q in (50, 95, 99, 100)))
