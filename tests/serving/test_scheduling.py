"""Each scheduling and KV mechanism on small workloads whose outcome is known."""

from __future__ import annotations

import pytest
from fake_runner import FakeRunner
from serving_kit import STOP, build, events, run_all, workload

from tutor.serving.config import EngineConfig
from tutor.serving.draft_length import FixedDraftLength
from tutor.serving.errors import ConfigError
from tutor.serving.request import Request
from tutor.serving.sampling import SamplingParams
from tutor.serving.speculative import CallbackDrafter
from tutor.serving.speculator import Speculator
from tutor.trace.playback import Playback


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


def test_forks_share_full_blocks_and_copy_the_one_they_write_into() -> None:
    config = EngineConfig(
        max_num_seqs=3, max_num_batched_tokens=32, block_size=4, num_blocks=32, prefix_caching=False
    )
    parent = Request("a", list(range(11)), 6, "A")
    core, _, store = build(config)
    for sample in parent.forks(3):
        core.add_request(sample)
    core.step()
    core.step()
    tables = [core.scheduler.kv.table(name) for name in ("a", "a.1", "a.2")]
    assert tables[0][:2] == tables[1][:2] == tables[2][:2]
    assert len({table[2] for table in tables}) == 3
    copied = [(r.event.from_block, r.event.num_tokens) for r in events(store, "BlockCopied")]
    assert copied == [(tables[0][2], 2), (tables[0][2], 2)]
    computed = sum(s.num_tokens for r in events(store, "StepScheduled") for s in r.event.scheduled)
    assert computed == 11 + 1 + 2 * 3, "a fork computes its tail only"


def test_a_fork_whose_parent_is_gone_computes_its_prompt() -> None:
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=32, block_size=4, prefix_caching=False)
    parent = Request("a", list(range(11)), 2, "A")
    samples = parent.forks(2)
    core, _, _ = build(config)
    for sample in samples:
        core.add_request(sample)
    while core.has_work:
        core.step()
    assert samples[0].output_token_ids == samples[1].output_token_ids


def test_requests_that_arrive_together_compute_a_new_shared_prefix_once() -> None:
    config = EngineConfig(max_num_seqs=8, max_num_batched_tokens=256, block_size=4, num_blocks=200)
    prefix = list(range(40))
    requests = [Request(f"r{i}", [*prefix, 41 + i], 2, label=chr(65 + i)) for i in range(8)]
    _, _, store = run_all(config, requests)
    prefilled = sum(
        s.num_tokens
        for r in events(store, "StepScheduled")
        for s in r.event.scheduled
        if s.phase == "prefill"
    )
    assert prefilled == 41 + 7
    assert any("computing its prefix" in r.event.reason for r in events(store, "StepScheduled"))


def test_tenants_with_other_salts_share_nothing() -> None:
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=64, block_size=4)
    prompt = list(range(17))
    requests = [Request(f"r{i}", prompt, 2, cache_salt=salt) for i, salt in enumerate(["x", "y", "x"])]
    run_all(config, requests)
    assert [r.num_cached_tokens for r in requests] == [0, 0, 16]


def test_a_hash_collision_is_no_match() -> None:
    core, _, _ = build(EngineConfig(max_num_seqs=1, max_num_batched_tokens=64, block_size=4))
    core.add_request(Request("a", [1, 2, 3, 4, 5], 1))
    while core.has_work:
        core.step()
    other = Request("b", [9, 9, 9, 9, 5], 1)
    stored = next(core.scheduler.kv.pool.cached())
    other.block_hashes.append((stored.block_hash, (9, 9, 9, 9)))
    assert core.scheduler.kv.match(other) == []


@pytest.mark.parametrize(
    ("admission", "order"),
    [
        ("fcfs", ["r0", "r1", "r2", "r3"]),
        ("shortest", ["r3", "r1", "r2", "r0"]),
        ("priority", ["r2", "r1", "r3", "r0"]),
    ],
)
def test_admission_rules(admission: str, order: list[str]) -> None:
    config = EngineConfig(
        max_num_seqs=1, max_num_batched_tokens=64, block_size=4, admission=admission, prefix_caching=False
    )
    sizes, priorities = [9, 5, 7, 3], [3, 1, 0, 2]
    requests = [Request(f"r{i}", list(range(sizes[i])), 2, priority=priorities[i]) for i in range(4)]
    _, _, store = run_all(config, requests)
    assert [r.event.request_id for r in events(store, "RequestScheduled")] == order


def test_longest_prefix_first() -> None:
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=64, block_size=4, admission="longest_prefix")
    warm, cold = list(range(12)), list(range(20, 32))
    core, _, store = build(config)
    core.add_request(Request("first", [*warm, 1], 2))
    while core.has_work:
        core.step()
    for request in (Request("cold", [*cold, 2], 2), Request("warm", [*warm, 3], 2)):
        core.add_request(request)
    while core.has_work:
        core.step()
    assert [r.event.request_id for r in events(store, "RequestScheduled")] == ["first", "warm", "cold"]


def test_nobody_is_passed_over_for_ever() -> None:
    config = EngineConfig(
        max_num_seqs=1, max_num_batched_tokens=64, block_size=4, admission="shortest", max_passed_over=3,
        prefix_caching=False,
    )  # fmt: skip
    core, _, store = build(config)
    core.add_request(Request("long", list(range(30)), 1))
    for i in range(8):
        core.add_request(Request(f"s{i}", [i], 1))
    while core.has_work:
        core.step()
    order = [r.event.request_id for r in events(store, "RequestScheduled")]
    assert order.index("long") == 3
    assert "passed over 3 times" in events(store, "RequestScheduled")[3].event.reason


@pytest.mark.parametrize(("order", "first"), [("decode_first", "decode"), ("prefill_first", "prefill")])
def test_who_gets_budget_first(order: str, first: str) -> None:
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=8, block_size=4, order=order)
    _, _, store = run_all(config, workload())
    mixed = [
        [s.phase for s in r.event.scheduled]
        for r in events(store, "StepScheduled")
        if len({s.phase for s in r.event.scheduled}) == 2
    ]
    assert mixed and (order == "prefill_first" or all(phases[0] == first for phases in mixed))


def test_the_watermark_leaves_blocks_to_the_running() -> None:
    plain = EngineConfig(max_num_seqs=4, max_num_batched_tokens=32, block_size=4, num_blocks=17)
    guarded = EngineConfig(
        max_num_seqs=4, max_num_batched_tokens=32, block_size=4, num_blocks=17, watermark_blocks=6
    )
    without = len(events(run_all(plain, workload())[2], "RequestPreempted"))
    with_mark = len(events(run_all(guarded, workload())[2], "RequestPreempted"))
    assert with_mark < without


def test_swapped_requests_recompute_nothing() -> None:
    settings = {"max_num_seqs": 4, "max_num_batched_tokens": 32, "block_size": 4, "num_blocks": 16}
    counts = {}
    for preemption in ("recompute", "swap"):
        config = EngineConfig(**settings, preemption=preemption, prefix_caching=False)
        requests = workload()
        _, _, store = run_all(config, requests)
        assert events(store, "RequestPreempted")
        counts[preemption] = sum(
            s.num_tokens for r in events(store, "StepScheduled") for s in r.event.scheduled
        )
    needed = sum(r.num_prompt_tokens + r.max_tokens - 1 for r in workload())
    assert counts["swap"] == needed < counts["recompute"]


def test_contiguous_reservation_wastes_what_paging_uses() -> None:
    settings = {"max_num_seqs": 6, "max_num_batched_tokens": 64, "block_size": 4, "num_blocks": 30}
    running = {}
    for allocator in ("paged", "contiguous"):
        config = EngineConfig(**settings, allocator=allocator, prefix_caching=False, shared_cells=False)
        _, _, store = run_all(config, [Request(f"r{i}", [i] * 4, 40, stop_token_ids=STOP) for i in range(6)])
        running[allocator] = max(r.event.num_running for r in events(store, "StepScheduled"))
    assert running["contiguous"] == 2 and running["paged"] > 2


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


def test_right_drafts_save_passes_and_are_counted() -> None:
    config = EngineConfig(max_num_seqs=2, max_num_batched_tokens=32, block_size=4, prefix_caching=False)
    drafter = CallbackDrafter(lambda ids, k: FakeRunner.solo(ids, k) if k else [], 50, "oracle")
    speculator = Speculator(drafter, FixedDraftLength(3))
    core, runner, store = build(config, speculator)
    request = Request("a", [1, 2, 3], 13, "A")
    core.add_request(request)
    while core.has_work:
        core.step()
    assert request.output_token_ids == FakeRunner.solo([1, 2, 3], 13)
    assert runner.num_steps == 1 + 12 // 4
    assert (speculator.stats.drafted, speculator.stats.accepted, speculator.stats.wasted) == (9, 9, 0)
    assert [len(r.event.accepted) for r in events(store, "TokensVerified")] == [3, 3, 3]


def test_wrong_drafts_cost_no_step_and_no_preemption() -> None:
    config = EngineConfig(
        max_num_seqs=2, max_num_batched_tokens=8, block_size=4, num_blocks=8, prefix_caching=False
    )
    drafter = CallbackDrafter(lambda ids, k: [0] * k, 50, "zeros")
    core, runner, store = build(config, Speculator(drafter, FixedDraftLength(4)))
    requests = [Request(f"r{i}", [i, 9], 12, "AB"[i]) for i in range(2)]
    for request in requests:
        core.add_request(request)
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    assert runner.num_steps == 12 and not events(store, "RequestPreempted")
    for request in requests:
        assert request.output_token_ids == FakeRunner.solo(request.prompt_token_ids, 12)


def test_a_stop_string_across_tokens_ends_the_text_before_it() -> None:
    solo = FakeRunner.solo([1, 2, 3], 20)
    text = "".join(chr(97 + token % 26) for token in solo)
    stop = text[5:8]
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=32, block_size=4)
    request = Request("a", [1, 2, 3], 20, "A", sampling=SamplingParams(stop=(stop, "never")))
    _, _, store = run_all(config, [request])
    assert "".join(r.event.text for r in events(store, "TokensEmitted")) == text[: text.index(stop)]
    assert request.status.value == "stop" and request.num_output_tokens == text.index(stop) + 3


def test_impossible_sampling_is_refused_with_a_sentence() -> None:
    core, _, _ = build(EngineConfig())
    with pytest.raises(ConfigError, match="top_p"):
        core.add_request(Request("a", [1], 2, sampling=SamplingParams(top_p=0.0)))
