"""The modelled runner: prices by hand, and the same scheduler as on the real model."""

from __future__ import annotations

import pytest
from serving_kit import events, workload

from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.request import Request
from tutor.simulation.cost_model import (
    CostModelRunner,
    Hardware,
    ModelCost,
    arbitrary_tokens,
    step_cost,
)
from tutor.trace.events import TraceHeader
from tutor.trace.store import Recorder, TraceStore

H100 = Hardware("H100 SXM", 989e12, 3.35e12)
LLAMA_8B = ModelCost("Llama-3.1-8B", 2 * 8_030_261_248, 2 * 7.505e9, 131_072, 32, 4096)


def test_one_decode_reads_the_weights() -> None:
    cost = step_cost(LLAMA_8B, H100, [(0, 1)])
    assert cost.bound == "memory"
    assert cost.seconds == pytest.approx(16.06e9 / 3.35e12, rel=1e-3)


def test_batching_shares_the_weights_but_not_the_kv() -> None:
    one = step_cost(LLAMA_8B, H100, [(4095, 1)]).seconds
    many = step_cost(LLAMA_8B, H100, [(4095, 1)] * 30).seconds
    # At 29.9 sequences of 4,096 tokens the KV traffic equals the weights.
    assert many == pytest.approx(2 * 16.06e9 / 3.35e12, rel=0.01)
    assert many < 2 * one * 1.1


def test_a_long_prefill_is_bound_by_arithmetic() -> None:
    assert step_cost(LLAMA_8B, H100, [(0, 4096)]).bound == "compute"
    half = Hardware("half", 989e12, 3.35e12, efficiency=0.5)
    full, slow = step_cost(LLAMA_8B, H100, [(0, 4096)]), step_cost(LLAMA_8B, half, [(0, 4096)])
    assert slow.compute == pytest.approx(2 * full.compute)


def test_chunks_cost_the_attention_of_the_whole() -> None:
    whole = step_cost(LLAMA_8B, H100, [(0, 1024)]).compute
    chunks = sum(step_cost(LLAMA_8B, H100, [(start, 256)]).compute for start in range(0, 1024, 256))
    assert chunks == pytest.approx(whole)


def run(config: EngineConfig, requests: list[Request]) -> tuple[CostModelRunner, TraceStore]:
    runner = CostModelRunner(LLAMA_8B, H100, arbitrary_tokens(1000))
    store = TraceStore(
        TraceHeader(
            lab="test", clock="virtual", provenance="modelled", model=LLAMA_8B.name,
            block_size=config.block_size, num_blocks=config.num_blocks, max_num_seqs=config.max_num_seqs,
        )
    )  # fmt: skip
    core = EngineCore(config, runner, Recorder(store.append, runner.now))
    for request in requests:
        core.add_request(request)
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    return runner, store


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_the_scheduler_drives_it_and_the_clock_is_the_sum_of_the_steps(preemption: str) -> None:
    config = EngineConfig(
        max_num_seqs=4, max_num_batched_tokens=32, block_size=4, num_blocks=16, preemption=preemption
    )
    requests = workload()
    runner, store = run(config, requests)
    assert events(store, "RequestPreempted")
    durations = sum(r.event.duration for r in events(store, "StepExecuted"))
    assert runner.now() >= durations > 0
    token = arbitrary_tokens(1000)
    for request in requests:
        expected = [token(request.request_id, i) for i in range(request.max_tokens)]
        assert request.output_token_ids == expected


def test_the_clock_can_wait_for_an_arrival_but_not_go_back() -> None:
    runner = CostModelRunner(LLAMA_8B, H100, arbitrary_tokens(10))
    runner.advance_to(2.0)
    runner.advance_to(1.0)
    assert runner.now() == 2.0
