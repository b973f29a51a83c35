"""Random workloads on every policy: same tokens as alone, invariants after each step, nothing leaked."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.errors import RequestTooLarge
from tutor.serving.request import Request
from tutor.trace.events import TraceHeader, TraceRecord
from tutor.trace.playback import Playback
from tutor.trace.store import Recorder, TraceStore

_spec = importlib.util.spec_from_file_location("fake_runner", Path(__file__).with_name("fake_runner.py"))
assert _spec and _spec.loader
fake_runner = importlib.util.module_from_spec(_spec)
sys.modules["fake_runner"] = fake_runner
_spec.loader.exec_module(fake_runner)
FakeRunner = fake_runner.FakeRunner

STOP = frozenset({7})


def build(config: EngineConfig) -> tuple[EngineCore, FakeRunner, TraceStore]:
    runner = FakeRunner(config.num_blocks * config.block_size)
    store = TraceStore(
        TraceHeader(
            lab="test", clock="virtual", provenance="simulated", model="hash",
            block_size=config.block_size, num_blocks=config.num_blocks, max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )
    )  # fmt: skip
    return EngineCore(config, runner, Recorder(store.append, runner.now)), runner, store


def assert_ledger_equals_cells(core: EngineCore, runner: FakeRunner) -> None:
    ledger = sorted((c.position, c.sequences) for c in core.scheduler.kv.ledger().values())
    cells = sorted((position, tuple(sorted(owners))) for position, _, owners in runner.cells.values())
    assert ledger == cells


def make_config(**settings: object) -> EngineConfig:
    """Settings that exclude each other are mended."""
    if settings["allocator"] == "contiguous":
        settings["prefix_caching"] = False
    return EngineConfig(**settings)  # type: ignore[arg-type]


configs = st.builds(
    make_config,
    max_num_seqs=st.integers(1, 5),
    max_num_batched_tokens=st.integers(5, 40),
    block_size=st.sampled_from([1, 2, 4, 8]),
    num_blocks=st.integers(24, 60),
    batching=st.sampled_from(["continuous", "static"]),
    prefix_caching=st.booleans(),
    chunked_prefill=st.booleans(),
    max_parked=st.integers(0, 8),
    order=st.sampled_from(["decode_first", "prefill_first"]),
    admission=st.sampled_from(["fcfs", "priority", "shortest", "longest_prefix"]),
    max_passed_over=st.integers(0, 4),
    preemption=st.sampled_from(["recompute", "swap"]),
    allocator=st.sampled_from(["paged", "paged", "contiguous"]),
    watermark_blocks=st.integers(0, 4),
)
prompts = st.tuples(
    st.integers(0, 2), st.lists(st.integers(0, 49), min_size=1, max_size=6), st.integers(1, 8)
)


@settings(max_examples=500, deadline=None)
@given(
    config=configs,
    workload=st.lists(prompts, min_size=1, max_size=8),
    arrivals=st.lists(st.integers(0, 6), min_size=8, max_size=8),
    abort_at=st.one_of(st.none(), st.tuples(st.integers(0, 7), st.integers(1, 12))),
)
def test_random_workloads(config, workload, arrivals, abort_at) -> None:  # type: ignore[no-untyped-def]
    core, runner, store = build(config)
    shared = [[], list(range(10, 20)), list(range(30, 37))]
    requests = []
    for i, (prefix, own, max_tokens) in enumerate(workload):
        prompt = (shared[prefix] + own)[: config.num_blocks * config.block_size - max_tokens]
        requests.append(
            Request(f"r{i}", prompt, max_tokens, label=chr(65 + i), stop_token_ids=STOP, priority=i % 3)
        )
    pending = sorted(zip(arrivals, requests, strict=False), key=lambda pair: pair[0])
    aborted = None
    step = 0
    while pending or core.has_work:
        while pending and pending[0][0] <= step:
            request = pending.pop(0)[1]
            try:
                core.add_request(request)
            except RequestTooLarge:
                assert not config.chunked_prefill
                requests.remove(request)
        if abort_at and step == abort_at[1] and f"r{abort_at[0]}" in core.scheduler.requests:
            aborted = f"r{abort_at[0]}"
            core.abort(aborted)
            core.scheduler.check_integrity()
        core.step()
        core.scheduler.check_integrity()
        assert_ledger_equals_cells(core, runner)
        step += 1
        assert step < 3000, "no progress"
    for request in requests:
        expected = FakeRunner.solo(request.prompt_token_ids, request.max_tokens, STOP)
        if request.request_id == aborted:
            assert request.output_token_ids == expected[: len(request.output_token_ids)]
        else:
            assert request.output_token_ids == expected
            assert request.status.value == ("stop" if expected[-1] in STOP else "length")
    assert core.scheduler.kv.pool.num_used == 0 and not runner.saved
    assert all(not runner.positions(slot) for slot in range(config.max_num_seqs))
    playback = Playback(store)
    view = playback.view.serving
    assert view.num_used_blocks == 0 and all(slot.request_id is None for slot in view.slots)


def run_all(config: EngineConfig, requests: list[Request]) -> tuple[EngineCore, FakeRunner, TraceStore]:
    core, runner, store = build(config)
    for request in requests:
        core.add_request(request)
    while core.has_work:
        core.step()
    return core, runner, store


def events(store: TraceStore, name: str) -> list[TraceRecord]:
    return [record for record in store.records if type(record.event).__name__ == name]


def workload(n: int = 6, prompt: int = 20, output: int = 12) -> list[Request]:
    system = list(range(16))
    return [
        Request(f"r{i}", system + [20 + i] * (prompt - 16), output + 4 * i, label=chr(65 + i))
        for i in range(n)
    ]


def test_prefill_chunks_and_decodes_share_a_step() -> None:
    _, _, store = run_all(EngineConfig(max_num_seqs=4, max_num_batched_tokens=12, block_size=4), workload())
    phases = [{s.phase for s in r.event.scheduled} for r in events(store, "StepScheduled")]
    assert {"prefill", "decode"} in phases


def test_static_batching_takes_more_steps_and_holds_slots() -> None:
    continuous = EngineConfig(max_num_seqs=2, max_num_batched_tokens=32, block_size=4)
    static = EngineConfig(max_num_seqs=2, max_num_batched_tokens=32, block_size=4, batching="static")
    lengths = [40, 4, 4, 40, 4, 4]
    mixed = [[Request(f"r{i}", [i, 9], n, label=chr(65 + i)) for i, n in enumerate(lengths)] for _ in "ab"]
    _, fast, _ = run_all(continuous, mixed[0])
    _, slow, store = run_all(static, mixed[1])
    assert slow.num_steps > 1.3 * fast.num_steps
    held = 0
    playback = Playback(store)
    for step in range(store.last_step + 1):
        playback.seek(step)
        held += sum(slot.phase == "held" for slot in playback.view.serving.slots)
    assert held > 0


def test_static_batch_is_formed_over_several_steps() -> None:
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=8, block_size=4, batching="static")
    _, _, store = run_all(config, workload(3))
    assert max(r.event.num_running for r in events(store, "StepScheduled")) == 3


def test_few_blocks_preempt_and_recompute() -> None:
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=32, block_size=4, num_blocks=16)
    _, _, store = run_all(config, workload())
    assert events(store, "RequestPreempted")
    assert "joined last" in events(store, "RequestPreempted")[0].event.reason


def test_cached_prefix_is_reused_after_its_request_is_gone() -> None:
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=32, block_size=4, num_blocks=32)
    _, _, store = run_all(config, workload(2))
    matched = events(store, "PrefixMatched")
    assert len(matched) == 1 and matched[0].event.num_cached_tokens == 16
    assert matched[0].event.source == "the cache"


def test_an_identical_prompt_recomputes_its_last_token() -> None:
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=64, block_size=4)
    prompt = list(range(16))
    _, _, store = run_all(config, [Request("a", prompt, 2, "A"), Request("b", list(prompt), 2, "B")])
    assert [r.event.num_cached_tokens for r in events(store, "PrefixMatched")] == [12]


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_every_decision_says_why(batching: str) -> None:
    config = EngineConfig(
        max_num_seqs=2, max_num_batched_tokens=10, block_size=4, num_blocks=14, batching=batching
    )
    _, _, store = run_all(config, workload())
    for name in ("RequestQueued", "RequestScheduled", "RequestPreempted", "BlocksAllocated", "BlocksFreed"):
        assert all(record.event.reason for record in events(store, name)), name
    for record in events(store, "StepScheduled"):
        assert all(share.reason for share in record.event.scheduled)
