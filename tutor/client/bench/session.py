"""A whole benchmark: prepare, warm up, probe, run, sum up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import msgspec

from tutor.client.bench.driver import Driver, Progress
from tutor.client.bench.prepare import (
    find_model_id,
    measure_ratio,
    probe_cache,
    settle_target,
    warm_up,
)
from tutor.client.bench.result import Result, Setup, make_result
from tutor.client.bench.stream import Target
from tutor.client.bench.workload import Load, Ratio, make_items
from tutor.client.http import make_client
from tutor.metrics.goodput import Targets

Say = Callable[[str], None]


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


async def bench(
    plan: Plan, say: Say | None = None, on_change: Callable[[Progress], None] | None = None
) -> Result:
    """Run the plan. ClientError when the server cannot be used at all.

    Ctrl-C (SIGINT) and SIGTERM end the load; the result is then that of what had finished by then. During
    the preparation they end it by KeyboardInterrupt as usual.
    """
    tell = say or (lambda _: None)
    load = plan.load
    async with make_client(plan.url, plan.api_key, plan.timeout) as client:
        model = plan.model or await find_model_id(client)
        target = Target(model, plan.endpoint, load.temperature, load.ignore_eos)
        tell(f"{model}: asking for the length of its tokens")
        target = await settle_target(client, target)
        ratio = await measure_ratio(client, target, load)
        if load.warmup:
            tell(f"warming up with {load.warmup} requests")
            await warm_up(client, target, load, ratio or Ratio())
        probe = None
        if plan.probe:
            tell("sending prompts twice, to see whether they are cached")
            probe = await probe_cache(client, target, load, ratio or Ratio())
        driver = Driver(client, target, make_items(load, ratio or Ratio()), load)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, driver.stop)
        try:
            run = await driver.run(on_change)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
    setup = Setup(
        url=plan.url,
        target=target,
        load=load,
        percentiles=plan.percentiles,
        targets=plan.targets,
        counts_tokens=ratio is not None,
        probe=probe,
    )
    return make_result(setup, run)
