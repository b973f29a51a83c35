"""Exact mode: continuous batching with chunked prefill changes no bit of any request's logits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tutor.llama.engine import LlamaEngine
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ConfigError
from tutor.serving.sampling import SamplingParams
from tutor.trace.store import TraceStore

NUM_REQUESTS = 24
TEXTS = (
    "The capital of France is",
    "Once upon a time, there was a little girl who",
    "def fibonacci(n):",
    "Water boils at",
    "In 1969, the first human",
    "Dear customer, thank you for your letter about the delayed delivery of your order. We",
    "A haiku about rain:",
    "List of fruits: apple, banana, cherry,",
)


def mixed_requests(model: Model) -> list[tuple[list[int], int]]:
    """Prompts of 3 to about 90 tokens, 4 to 16 tokens of output."""
    rng = random.Random(7)
    requests = []
    for i in range(NUM_REQUESTS):
        text = " ".join(rng.sample(TEXTS, k=rng.randint(1, 4)))
        requests.append((model.tokenize(f"{text} {i}"), rng.randint(4, 16)))
    return requests


def run_batched(
    model: Model, requests: list[tuple[list[int], int]], config: EngineConfig, sampling: SamplingParams
) -> tuple[list[list[int]], dict[str, list[np.ndarray]], TraceStore]:
    rows: dict[str, list[np.ndarray]] = {}
    engine = LlamaEngine(
        model, config, mode="exact", on_logits=lambda name, row: rows.setdefault(name, []).append(row)
    )
    store = TraceStore(engine.header("test"))
    core = engine.start(store.append)
    made = [
        engine.request(f"r{i}", str(i), tokens, count, sampling=sampling, ignore_eos=True)
        for i, (tokens, count) in enumerate(requests)
    ]
    for request in made:
        core.add_request(request)
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    assert core.scheduler.kv.pool.num_used == 0
    assert all(engine.context.pos_max(slot) == -1 for slot in range(config.max_num_seqs))
    engine.close()
    return [request.output_token_ids for request in made], rows, store


def test_24_mixed_requests_equal_their_solo_runs_bit_for_bit(model: Model, reference: ReferenceModel) -> None:
    requests = mixed_requests(model)
    config = EngineConfig(
        max_num_seqs=6,
        max_num_batched_tokens=40,
        block_size=16,
        num_blocks=24,
        prefix_caching=False,
        shared_cells=False,
    )
    outputs, rows, store = run_batched(model, requests, config, SamplingParams())
    kinds = [
        {share.phase for share in record.event.scheduled}
        for record in store.records
        if type(record.event).__name__ == "StepScheduled"
    ]
    assert {"prefill", "decode"} in kinds, "no step mixed prefill and decode"
    starts = [
        share
        for record in store.records
        if type(record.event).__name__ == "StepScheduled"
        for share in record.event.scheduled
        if share.phase == "prefill" and share.start > 0
    ]
    assert starts, "no prompt was chunked"
    for i, (tokens, count) in enumerate(requests):
        assert outputs[i] == reference.greedy(tokens, count, stop_at_eog=False), f"request {i}"
        sequence = list(tokens)
        for row, token in zip(rows[f"r{i}"], outputs[i], strict=True):
            solo = reference.next_logits(sequence)
            assert float(np.abs(row - solo).max()) == 0.0, f"request {i} at {len(sequence)} tokens"
            sequence.append(token)


def test_seeded_sampling_does_not_depend_on_the_batch(model: Model) -> None:
    requests = mixed_requests(model)[:6]
    sampling = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02, seed=11)
    batched = EngineConfig(
        max_num_seqs=4, max_num_batched_tokens=24, num_blocks=32, prefix_caching=False, shared_cells=False
    )
    alone = EngineConfig(
        max_num_seqs=1, max_num_batched_tokens=128, num_blocks=32, prefix_caching=False, shared_cells=False
    )
    together, _, _ = run_batched(model, requests, batched, sampling)
    assert together == run_batched(model, requests, alone, sampling)[0]
    other = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02, seed=12)
    assert together != run_batched(model, requests, batched, other)[0]


def test_exact_mode_refuses_prefix_sharing(model: Model) -> None:
    with pytest.raises(ConfigError, match="Exact mode cannot share cells"):
        LlamaEngine(model, EngineConfig(), mode="exact")
