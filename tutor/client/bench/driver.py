"""Sends the requests of a run: as many at a time as asked (closed loop), or when each is due (open loop)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx2
import msgspec

from tutor.client.bench.record import RequestRecord
from tutor.client.bench.stream import Target, ask
from tutor.client.bench.watchdog import ClientLoad, Watchdog
from tutor.client.bench.workload import Item, Load

# Of the event loop: one to see a socket, one to wake its task, and again for chunks that come just behind.
ROUNDS = 5


class Progress(msgspec.Struct, frozen=True):
    """A run under way: requests done (failed ones included), in flight and planned; seconds so far."""

    done: int
    failed: int
    in_flight: int
    planned: int
    tokens: int
    seconds: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A finished or interrupted run. `duration`: seconds from the start to the last answer."""

    started_at: float
    duration: float
    planned: int
    records: tuple[RequestRecord, ...]
    client: ClientLoad
    interrupted: bool
    most_in_flight: int


async def _read_others() -> None:
    """Let chunks that wait in the sockets be read, and their time be taken, before a request is sent.

    To send one takes about a millisecond of CPU. Answers of equal length end together; without this the last
    of them would be read some milliseconds after it came.
    """
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


class Driver:
    """Runs `items` once. `stop()` ends the run early; what was in flight is marked as cut."""

    def __init__(self, client: httpx2.AsyncClient, target: Target, items: Sequence[Item], load: Load) -> None:
        self._client = client
        self._target = target
        self._items = items
        self._load = load
        self._records: list[RequestRecord] = []
        self._in_flight = 0
        self._most = 0
        self._tokens = 0
        self._failed = 0
        self._stop = asyncio.Event()
        self._started = 0.0

    def stop(self) -> None:
        self._stop.set()

    @property
    def progress(self) -> Progress:
        seconds = time.perf_counter() - self._started
        done, planned = len(self._records), len(self._items)
        return Progress(done, self._failed, self._in_flight, planned, self._tokens, seconds)

    async def run(self, on_change: Callable[[Progress], None] | None = None) -> Run:
        self._on_change = on_change
        self._started = time.perf_counter()
        async with Watchdog() as watchdog:
            sender = asyncio.create_task(self._closed() if self._load.arrivals == "closed" else self._open())
            stopper = asyncio.create_task(self._stop.wait())
            await asyncio.wait([sender, stopper], return_when=asyncio.FIRST_COMPLETED)
            interrupted = not sender.done()
            for task in (sender, stopper):
                task.cancel()
            await asyncio.wait([sender, stopper])
            ended = time.perf_counter()
            if not sender.cancelled() and (error := sender.exception()) is not None:
                raise error
        answered = [r.finished_at for r in self._records if r.finished_at is not None and not r.cut]
        end = ended if interrupted or not answered else max(answered)
        return Run(
            started_at=self._started,
            duration=end - self._started,
            planned=len(self._items),
            records=tuple(sorted(self._records, key=lambda record: record.index)),
            client=watchdog.load,
            interrupted=interrupted,
            most_in_flight=self._most,
        )

    def _time_is_up(self) -> bool:
        limit = self._load.duration
        return limit is not None and time.perf_counter() - self._started >= limit

    async def _one(self, item: Item, planned_at: float | None) -> None:
        self._in_flight += 1
        self._most = max(self._most, self._in_flight)
        record = await ask(self._client, self._target, item.prompt, item.max_tokens, item.index, planned_at)
        self._in_flight -= 1
        self._tokens += record.num_output_tokens
        self._failed += bool(record.error)
        self._records.append(record)
        if self._on_change is not None:
            self._on_change(self.progress)
        if record.cut:
            raise asyncio.CancelledError

    async def _closed(self) -> None:
        """`concurrency` senders; each sends its next request when its last one is answered."""
        waiting = iter(self._items)

        async def send() -> None:
            for item in waiting:
                if self._time_is_up():
                    return
                await _read_others()
                await self._one(item, None)

        async with asyncio.TaskGroup() as group:
            for _ in range(self._load.concurrency or 1):
                group.create_task(send())

    async def _open(self) -> None:
        """Each request when it is due, whatever became of those before it."""
        room = asyncio.Semaphore(self._load.concurrency) if self._load.concurrency else None

        async def send(item: Item, planned_at: float) -> None:
            if room is None:
                await self._one(item, planned_at)
                return
            async with room:
                await self._one(item, planned_at)

        async with asyncio.TaskGroup() as group:
            for item in self._items:
                at = item.at or 0.0
                if self._load.duration is not None and at >= self._load.duration:
                    break
                wait = self._started + at - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
                group.create_task(send(item, self._started + at))
