"""Random workloads on every policy: same tokens as alone, invariants after each step, nothing leaked."""

from __future__ import annotations

from fake_runner import FakeRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_kit import STOP, assert_ledger_equals_cells, build

from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.draft_length import FixedDraftLength
from tutor.serving.errors import RequestTooLarge
from tutor.serving.request import Request
from tutor.serving.speculative import CallbackDrafter, PromptLookupDrafter
from tutor.serving.speculator import Speculator
from tutor.serving.tier_policy import LinearCosts, Link
from tutor.serving.tier_types import TierConfig
from tutor.serving.tiering import Tiering
from tutor.serving.tiers import TierStore
from tutor.trace.playback import Playback
from tutor.trace.store import TraceStore


def make_config(**settings: object) -> EngineConfig:
    """Settings that exclude each other are mended."""
    if settings["allocator"] == "contiguous":
        settings["prefix_caching"] = settings["shared_cells"] = False
    settings["shared_cells"] = settings["prefix_caching"] or settings["shared_cells"]
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
    shared_cells=st.booleans(),
)
prompts = st.tuples(
    st.integers(0, 2),
    st.lists(st.integers(0, 49), min_size=1, max_size=6),
    st.integers(1, 8),
    st.sampled_from([1, 1, 1, 3]),
)


def wrong_drafts(tokens: list[int], k: int) -> list[int]:
    return [(FakeRunner.next_token(list(enumerate(tokens))) + 1) % 50] * k


def right_drafts(tokens: list[int], k: int) -> list[int]:
    return FakeRunner.solo(tokens, k) if k else []


DRAFTERS = {
    "none": None,
    "lookup": lambda: PromptLookupDrafter(),
    "right": lambda: CallbackDrafter(right_drafts, 50, "right"),
    "wrong": lambda: CallbackDrafter(wrong_drafts, 50, "wrong"),
}


def make_tiering(capacity: int) -> Tiering:
    """Two tiers of that many bytes; loading is always faster than computing."""
    costs = LinearCosts({"warm": Link(0.0, 1e12), "cold": Link(0.0, 1e12)}, 1.0)
    tiers = (TierConfig("warm", capacity), TierConfig("cold", 2 * capacity))
    return Tiering(TierStore(tiers, costs, block_size=2), min_tokens=2)


def assert_nothing_is_left(
    core: EngineCore, runner: FakeRunner, store: TraceStore, tiering: Tiering | None
) -> None:
    """No leaked block, slot or tier byte, in the engine and in the fold of its trace."""
    assert core.scheduler.kv.pool.num_used == 0 and not runner.saved
    assert all(not runner.positions(slot) for slot in range(core.config.max_num_seqs))
    if tiering is not None:
        tiering.store.clear()
        assert tiering.store.used_bytes() == 0
        tiering.check_integrity()
    playback = Playback(store)
    view = playback.view.serving
    assert view.num_used_blocks == 0 and all(slot.request_id is None for slot in view.slots)


@settings(max_examples=500, deadline=None)
@given(
    config=configs,
    workload=st.lists(prompts, min_size=1, max_size=8),
    arrivals=st.lists(st.integers(0, 6), min_size=8, max_size=8),
    abort_at=st.one_of(st.none(), st.tuples(st.integers(0, 7), st.integers(1, 12))),
    drafts=st.tuples(st.sampled_from(sorted(DRAFTERS)), st.integers(1, 5)),
    capacity=st.sampled_from([0, 0, 400, 4000]),
)
def test_random_workloads(  # type: ignore[no-untyped-def]
    config, workload, arrivals, abort_at, drafts, capacity
) -> None:
    make = DRAFTERS[drafts[0]]
    speculator = Speculator(make(), FixedDraftLength(drafts[1])) if make else None
    tiering = make_tiering(capacity) if capacity else None
    core, runner, store = build(config, speculator, tiering)
    shared = [[], list(range(10, 20)), list(range(30, 37))]
    requests: list[Request] = []
    pending: list[tuple[int, Request]] = []
    for i, (prefix, own, max_tokens, n) in enumerate(workload):
        prompt = (shared[prefix] + own)[: config.num_blocks * config.block_size - max_tokens]
        request = Request(f"r{i}", prompt, max_tokens, label=chr(65 + i), stop_token_ids=STOP, priority=i % 3)
        samples = request.forks(n)
        requests += samples
        pending += [(arrivals[i], sample) for sample in samples]
    pending.sort(key=lambda pair: pair[0])
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
    assert_nothing_is_left(core, runner, store, tiering)
