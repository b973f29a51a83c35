"""Each mechanism on or off gives the same tokens, and the ledger equals llama.cpp's cells through all of it.

Exact mode takes ordinary prompts. Shared mode takes number lists, whose best next token leads by more than
the noise that the order of shared cells makes (tests/labs/test_paged_exactness.py measures the margins).
"""

from __future__ import annotations

from typing import Any

import pytest

from tutor.labs.paged import LISTS, SYSTEM_PROMPT, prompt_text
from tutor.llama.codec import make_codec
from tutor.llama.engine import LlamaEngine
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.serving.config import EngineConfig
from tutor.serving.draft_length import FixedDraftLength
from tutor.serving.request import Request
from tutor.serving.sampling import SamplingParams
from tutor.serving.speculative import OracleDrafter, PromptLookupDrafter
from tutor.serving.speculator import Speculator
from tutor.serving.tier_policy import LinearCosts, Link
from tutor.serving.tier_types import TierConfig
from tutor.serving.tiering import Tiering
from tutor.serving.tiers import TierStore
from tutor.trace.store import TraceStore

TEXTS = (
    "The capital of France is",
    "Once upon a time, there was a little girl who lived",
    "def fibonacci(n):",
    "Dear customer, thank you for your letter about the delayed delivery of your order. We",
    "Water boils at a temperature of",
    "In 1969, the first human",
)
NEW_TOKENS = 14


class Outcome:
    """What a run produced, and what it took."""

    def __init__(self, requests: list[Request], store: TraceStore, mismatches: int, compared: int) -> None:
        self.tokens = [request.output_token_ids for request in requests]
        self.store = store
        self.mismatches = mismatches
        self.compared = compared

    def count(self, event: str) -> int:
        return sum(type(record.event).__name__ == event for record in self.store.records)

    @property
    def computed(self) -> int:
        steps = [r.event for r in self.store.records if type(r.event).__name__ == "StepExecuted"]
        return sum(step.num_tokens for step in steps)


def run(
    model: Model,
    prompts: list[list[int]],
    mode: Any,
    samples: int = 1,
    speculator: Speculator | None = None,
    sampling: SamplingParams | None = None,
    **settings: Any,
) -> Outcome:
    shared = mode == "shared"
    defaults: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "num_blocks": 40}
    defaults |= {"shared_cells": shared, "prefix_caching": False, "max_parked": 40}
    engine = LlamaEngine(model, EngineConfig(**(defaults | settings)), mode=mode, watch_cells=shared)
    store = TraceStore(engine.header("test"))
    core = engine.start(store.append, speculator)
    requests: list[Request] = []
    for i, tokens in enumerate(prompts):
        first = engine.request(f"r{i}", chr(65 + i), tokens, NEW_TOKENS, sampling=sampling, ignore_eos=True)
        requests += first.forks(samples)
    for request in requests:
        core.add_request(request)
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    assert core.scheduler.kv.pool.num_used == 0
    watcher = engine.watcher
    counts = (watcher.num_mismatches, watcher.num_compared) if watcher else (0, 0)
    engine.close()
    return Outcome(requests, store, *counts)


@pytest.fixture(scope="module")
def ordinary(model: Model) -> list[list[int]]:
    return [model.tokenize(text) for text in TEXTS]


@pytest.fixture(scope="module")
def alone(reference: ReferenceModel, ordinary: list[list[int]]) -> list[list[int]]:
    return [reference.greedy(tokens, NEW_TOKENS, stop_at_eog=False) for tokens in ordinary]


EXACT = {
    "one at a time": {"max_num_seqs": 1},
    "continuous": {},
    "static": {"batching": "static"},
    "small chunks": {"max_num_batched_tokens": 7},
    "no chunks": {"chunked_prefill": False},
    "prefill first": {"order": "prefill_first", "max_num_batched_tokens": 9},
    "recompute": {"num_blocks": 12, "block_size": 4},
    "swap": {"num_blocks": 12, "block_size": 4, "preemption": "swap"},
    "contiguous": {"allocator": "contiguous", "num_blocks": 10, "block_size": 8},
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_mode(model: Model, ordinary: list[list[int]], alone: list[list[int]], name: str) -> None:
    outcome = run(model, ordinary, "exact", **EXACT[name])
    assert outcome.tokens == alone
    assert (outcome.count("RequestPreempted") > 0) == (name in ("recompute", "swap"))


def speculators(prompts: list[list[int]], answers: list[list[int]]) -> dict[str, Speculator]:
    """Good, half right and adversarial drafts, and those of the prompt."""
    right = {f"r{i}": tokens for i, tokens in enumerate(answers)}
    oracle = {
        f"oracle {alpha}": Speculator(OracleDrafter(right, alpha, 49_152, seed=3), FixedDraftLength(4))
        for alpha in (1.0, 0.5, 0.0)
    }
    return oracle | {"lookup": Speculator(PromptLookupDrafter(), FixedDraftLength(3))}


@pytest.mark.parametrize("name", ["oracle 1.0", "oracle 0.5", "oracle 0.0", "lookup"])
@pytest.mark.parametrize("settings", [{}, {"num_blocks": 12, "block_size": 4}])
def test_speculation_in_exact_mode(
    model: Model, ordinary: list[list[int]], alone: list[list[int]], name: str, settings: dict[str, Any]
) -> None:
    speculator = speculators(ordinary, alone)[name]
    outcome = run(model, ordinary[:4], "exact", speculator=speculator, **settings)
    assert outcome.tokens == alone[:4]
    stats = speculator.stats
    assert stats.drafted == stats.accepted + stats.wasted
    if name.startswith("oracle"):
        assert stats.drafted > 0 and (stats.accepted > 0) == (name != "oracle 0.0")
        assert (stats.wasted > 0) == (name != "oracle 1.0")


def test_sampled_text_does_not_depend_on_drafts(model: Model, ordinary: list[list[int]]) -> None:
    sampling = SamplingParams(temperature=0.9, top_p=0.95, seed=5, repetition_penalty=1.1)
    plain = run(model, ordinary[:3], "exact", sampling=sampling).tokens
    drafted = Speculator(PromptLookupDrafter(), FixedDraftLength(3))
    assert run(model, ordinary[:3], "exact", sampling=sampling, speculator=drafted).tokens == plain
    oracle = speculators(ordinary, plain)["oracle 0.5"]
    assert run(model, ordinary[:3], "exact", sampling=sampling, speculator=oracle).tokens == plain
    assert oracle.stats.accepted > 0


@pytest.fixture(scope="module")
def golden(model: Model) -> list[list[int]]:
    system = model.tokenize(SYSTEM_PROMPT)
    return [system + model.tokenize(prompt_text(first, step)) for first, step, _ in LISTS[:5]]


@pytest.fixture(scope="module")
def golden_alone(model: Model, golden: list[list[int]]) -> list[list[int]]:
    settings = {"max_num_seqs": 1, "max_num_batched_tokens": 128}
    return [run(model, [tokens], "shared", **settings).tokens[0] for tokens in golden]


SHARED = {
    "nothing shared": {},
    "prefix cache": {"prefix_caching": True},
    "prefix cache, blocks of 4": {
        "prefix_caching": True,
        "block_size": 4,
        "num_blocks": 160,
        "max_parked": 120,
    },
    "few parks": {"prefix_caching": True, "max_parked": 2},
    "recompute": {"prefix_caching": True, "num_blocks": 9},
    "swap": {"prefix_caching": True, "num_blocks": 12, "preemption": "swap"},
    "swap, nothing shared": {"num_blocks": 14, "preemption": "swap"},
    "longest prefix first": {"prefix_caching": True, "admission": "longest_prefix", "max_num_seqs": 2},
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_mode(model: Model, golden: list[list[int]], golden_alone: list[list[int]], name: str) -> None:
    outcome = run(model, golden, "shared", **SHARED[name])
    assert outcome.tokens == golden_alone
    assert outcome.mismatches == 0 and outcome.compared > 1000
    assert (outcome.count("RequestPreempted") > 0) == (name.startswith(("recompute", "swap")))
    assert (outcome.count("PrefixMatched") > 0) == bool(SHARED[name].get("prefix_caching"))


@pytest.mark.parametrize("name", ["oracle 1.0", "oracle 0.5", "lookup"])
def test_speculation_in_shared_mode(
    model: Model, golden: list[list[int]], golden_alone: list[list[int]], name: str
) -> None:
    speculator = speculators(golden, golden_alone)[name]
    outcome = run(model, golden, "shared", speculator=speculator, prefix_caching=True)
    assert outcome.tokens == golden_alone and outcome.mismatches == 0
    assert speculator.stats.accepted > 0


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_forks_share_their_prompt(
    model: Model, golden: list[list[int]], golden_alone: list[list[int]], prefix_caching: bool
) -> None:
    outcome = run(
        model, golden[:2], "shared", samples=3, prefix_caching=prefix_caching, num_blocks=60, max_num_seqs=6
    )
    assert outcome.tokens == [golden_alone[0]] * 3 + [golden_alone[1]] * 3
    assert outcome.mismatches == 0 and outcome.count("BlockCopied") == 4
    prompts = sum(map(len, golden[:2]))
    tails = sum(2 * ((len(tokens) - 1) % 16 + 1) for tokens in golden[:2])
    system = len(model.tokenize(SYSTEM_PROMPT)) // 16 * 16 if prefix_caching else 0
    assert outcome.computed == prompts - system + tails + 6 * (NEW_TOKENS - 1)


def test_eight_arrivals_with_one_new_prefix_compute_it_once(model: Model) -> None:
    prefix = model.tokenize(SYSTEM_PROMPT)[:32]
    prompts = [prefix + model.tokenize(f"{i}, ") for i in range(8)]
    outcome = run(model, prompts, "shared", prefix_caching=True, max_num_seqs=8, num_blocks=60)
    own = sum(len(tokens) - 32 for tokens in prompts)
    assert outcome.computed == 32 + own + 8 * (NEW_TOKENS - 1)
    assert outcome.mismatches == 0


@pytest.mark.parametrize(("mode", "codec"), [("exact", "none"), ("shared", "none"), ("shared", "turbo4")])
def test_a_returning_conversation_is_loaded_from_its_tier(
    model: Model, golden: list[list[int]], mode: Any, codec: str
) -> None:
    """Its first answer is part of the second prompt; only what is new is computed."""
    costs = LinearCosts({"warm": Link(0.001, 1e9)}, 0.01)
    codecs = {codec: make_codec(codec)} if codec != "none" else {}
    store = TierStore([TierConfig("warm", 10**8, codec)], costs, codecs=codecs)
    config = EngineConfig(
        max_num_seqs=2, max_num_batched_tokens=128, prefix_caching=False, shared_cells=mode == "shared"
    )
    engine = LlamaEngine(model, config, mode=mode, watch_cells=mode == "shared")
    trace = TraceStore(engine.header("test"))
    core = engine.start(trace.append, tiering=Tiering(store))

    def ask(name: str, tokens: list[int]) -> Request:
        request = engine.request(name, name, tokens, NEW_TOKENS, ignore_eos=True)
        core.add_request(request)
        while core.has_work:
            core.step()
            core.scheduler.check_integrity()
        return request

    first = ask("a", golden[0])
    second = ask("b", [*golden[0], *first.output_token_ids])
    mismatches = engine.watcher.num_mismatches if engine.watcher else 0
    engine.close()
    loaded = [r.event for r in trace.records if type(r.event).__name__ == "SequenceLoaded"]
    assert [event.num_tokens for event in loaded] == [len(golden[0]) + NEW_TOKENS - 1]
    assert "loading takes" in loaded[0].reason and second.lossy == (codec != "none")
    assert mismatches == 0
    again = run(model, [golden[0] + first.output_token_ids], mode, max_num_batched_tokens=128)
    if codec == "none":
        assert second.output_token_ids == again.tokens[0]
    store.clear()
    assert store.used_bytes() == 0
