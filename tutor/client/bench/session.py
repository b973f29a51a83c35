"""A whole benchmark: prepare, warm up, probe, run, sum up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import msgspec

from tutor.client.bench.driver import Driver, Progress
from tutor.client.bench.prepare import (
    find_model_id,
    list_models,
    measure_ratio,
    probe_cache,
    settle_target,
    warm_up,
)
from tutor.client.bench.result import Result, Setup, make_result
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load, Ratio, make_items
from tutor.client.http import ClientError, Unreachable, make_client
from tutor.metrics.goodput import Targets

Say = Callable[[str], None]
Watch = Callable[[Progress], None]
TICK = 0.5  # seconds between looks at a run in which no request ends


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for. `url` is a root as `base_url` gives it; `timeout` in seconds."""

    url: str
    load: Load
    endpoint: str = "chat"
    model: str | None = None
    api_key: str | None = None
    timeout: float = 120.0
    percentiles: tuple[float, ...] = (50.0, 95.0, 99.0)
    targets: Targets | None = None
    probe: bool = True


async def bench(plan: Plan, say: Say | None = None, on_change: Watch | None = None) -> Result:
    """Run the plan. ClientError when the server cannot be used at all. `on_change` hears of each answer, and
    twice a second when there is none.

    Ctrl-C (SIGINT) and SIGTERM end the load; the result is then that of what had finished by then. During
    the preparation they end it by KeyboardInterrupt as usual.
    """
    tell = say or (lambda _: None)
    load = plan.load
    async with make_client(plan.url, plan.api_key, plan.timeout) as client:
        model = plan.model or await find_model_id(client)
        listed = (model,) if plan.model is None else await _listed(client)
        target = Target(model, plan.endpoint, load.temperature, load.ignore_eos)
        tell(f"{model}: asking for the length of its tokens")
        target = await settle_target(client, target)
        ratio = await measure_ratio(client, target, load)
        if load.warmup:
            tell(f"warming up with {load.warmup} requests")
            await warm_up(
                client, target, load, ratio or Ratio(),
                lambda done: tell(f"warming up: {done} of {load.warmup} requests done"),
            )  # fmt: skip
        probe = None
        if plan.probe:
            tell("sending prompts twice, to see whether they are cached")
            probe = await probe_cache(client, target, load, ratio or Ratio())
        driver = Driver(client, target, make_items(load, ratio or Ratio()), load)
        async with _stopped_by_signals(driver), _looked_at(driver, on_change):
            run = await driver.run(on_change)
    setup = Setup(
        url=plan.url,
        target=target,
        load=load,
        percentiles=plan.percentiles,
        targets=plan.targets,
        listed_models=listed,
        template_tokens=ratio.overhead if ratio is not None else None,
        probe=probe,
    )
    return make_result(setup, run)


async def _listed(client: httpx2.AsyncClient) -> tuple[str, ...]:
    """A named model can be benched where models are not listed."""
    try:
        return await list_models(client)
    except Unreachable:
        raise
    except ClientError:
        return ()


@asynccontextmanager
async def _stopped_by_signals(driver: Driver) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, driver.stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def _looked_at(driver: Driver, on_change: Watch | None) -> AsyncIterator[None]:
    """Answers can take a minute; the seconds go on meanwhile."""
    if on_change is None:
        yield
        return

    async def look() -> None:
        while True:
            await asyncio.sleep(TICK)
            on_change(driver.progress)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
