"""Waste of paged and reserved blocks, on the serving core itself."""

from __future__ import annotations

import pytest
from serving_kit import build

from tutor.metrics.waste import Waste, kv_waste
from tutor.serving.config import EngineConfig
from tutor.serving.request import Request
from tutor.trace.playback import Playback


def waste_after(steps: int, allocator: str) -> Waste:
    config = EngineConfig(
        max_num_seqs=3, max_num_batched_tokens=64, block_size=4, num_blocks=30, allocator=allocator,
        prefix_caching=False, shared_cells=False,
    )  # fmt: skip
    core, _, store = build(config)
    for i in range(2):
        core.add_request(Request(f"r{i}", list(range(6)), 30, "AB"[i]))
    for _ in range(steps):
        core.step()
    return kv_waste(Playback(store).view.serving)


def test_paging_wastes_the_tail_only() -> None:
    waste = waste_after(1, "paged")
    assert (waste.used, waste.internal, waste.reserved) == (12, 4, 0)
    assert waste.use == pytest.approx(0.75) and waste.external_blocks == 0


def test_reservation_wastes_what_may_come() -> None:
    waste = waste_after(1, "contiguous")
    assert (waste.used, waste.internal, waste.reserved) == (12, 4, 2 * (36 - 8))
    assert waste.use == pytest.approx(12 / 72)


def test_gaps_between_reservations_are_external_waste() -> None:
    config = EngineConfig(
        max_num_seqs=4, max_num_batched_tokens=64, block_size=4, num_blocks=12, allocator="contiguous",
        prefix_caching=False, shared_cells=False,
    )  # fmt: skip
    core, _, store = build(config)
    lengths = (12, 1, 12)  # the short one leaves a gap of 4 blocks between two long ones
    for i, length in enumerate(lengths):
        prompt = list(range(16 - length))
        core.add_request(Request(f"r{i}", prompt, length, "ABC"[i]))
    core.add_request(Request("big", [1] * 20, 12, "D"))
    while "r1" in core.scheduler.requests:
        core.step()
    core.step()
    waste = kv_waste(Playback(store).view.serving)
    assert waste.free_blocks == 4 and waste.longest_free_run == 4
    assert core.scheduler.requests["big"].slot is None


def test_an_empty_pool_wastes_nothing() -> None:
    assert waste_after(0, "paged") == Waste(0, 0, 0, 30, 30) and waste_after(0, "paged").use == 1.0
