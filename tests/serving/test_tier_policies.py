"""What an entry is worth: who is evicted under each policy, and when loading beats recomputing."""

from __future__ import annotations

import random

import pytest

from tutor.serving.tier_policy import HALF_LIFE, LinearCosts, Link, Policy
from tutor.serving.tier_types import SequenceMoved, TierConfig
from tutor.serving.tiers import TierStore

COSTS = LinearCosts({"warm": Link(0.0, 1e6), "cold": Link(0.01, 1e4)}, seconds_per_token=0.01)


def make(warm: int, cold: int, policy: Policy = "lru", **settings: object) -> TierStore:
    tiers = [TierConfig("warm", warm), TierConfig("cold", cold)]
    return TierStore(tiers, settings.pop("costs", COSTS), policy=policy, block_size=4, **settings)  # type: ignore[arg-type]


def where(store: TierStore) -> dict[int, str]:
    """First token of each entry (tests give each its own) and its tier."""
    store.check_integrity()
    return {entry.token_ids[0]: store.tiers[entry.tier].name for entry in store.entries()}


def put(store: TierStore, first: int, num_bytes: int = 40, num_tokens: int = 10) -> int:
    entry = store.admit([first] * num_tokens, bytes([first]) * num_bytes)
    assert entry is not None
    return entry.key


def test_lru_evicts_what_was_used_longest_ago() -> None:
    store = make(warm=100, cold=50, policy="lru")
    first, _ = put(store, 1), put(store, 2)
    store.fetch(first)
    put(store, 3)
    assert where(store) == {1: "warm", 2: "cold", 3: "warm"}
    put(store, 4)
    assert where(store) == {1: "cold", 3: "warm", 4: "warm"}


def test_lfu_evicts_what_was_used_least() -> None:
    store = make(warm=100, cold=0, policy="lfu")
    first, second = put(store, 1), put(store, 2)
    for key in (first, first, second):
        store.fetch(key)
    put(store, 3)
    assert where(store) == {1: "warm", 3: "warm"}


def test_cost_evicts_what_saves_least_per_byte() -> None:
    store = make(warm=100, cold=0, policy="cost")
    put(store, 1, num_bytes=60, num_tokens=40)  # 6.7 ms a byte, although it saves most in all
    put(store, 2, num_bytes=20, num_tokens=20)  # 10 ms a byte
    put(store, 3, num_bytes=30, num_tokens=30)
    assert where(store) == {2: "warm", 3: "warm"}
    put(store, 4, num_bytes=10, num_tokens=5)
    put(store, 5, num_bytes=50, num_tokens=50)
    assert where(store) == {2: "warm", 3: "warm", 5: "warm"}, "the newest was not worth least"


def test_cost_counts_old_uses_less_than_new_ones() -> None:
    store = make(warm=120, cold=0, policy="cost")
    loved, used, other = put(store, 1), put(store, 2), put(store, 3)
    for _ in range(20):
        store.fetch(loved)
    for _ in range(3 * HALF_LIFE):  # 21 uses are worth 2.6 after that
        store.fetch(other)
    for _ in range(5):
        store.fetch(used)
    put(store, 4)
    assert where(store) == {2: "warm", 3: "warm", 4: "warm"}


def test_cost_drops_what_recomputes_faster_than_it_loads() -> None:
    """5 tokens over a slow link: its latency and 40 bytes cost 14 ms, recomputing them 5."""
    costs = LinearCosts(COSTS.links, seconds_per_token=0.001)
    told: list[SequenceMoved] = []
    store = make(warm=80, cold=1000, policy="cost", costs=costs, on_move=told.append)
    put(store, 1, num_tokens=5)
    put(store, 2, num_tokens=50)
    put(store, 3, num_tokens=50)
    assert where(store) == {2: "warm", 3: "warm"}
    assert [event.reason for event in told if not event.to_tier] == [
        "warm needs room and it is worth least (cost); recomputing is faster than loading from cold"
    ]
    assert store.demote(store.lookup([2] * 50).key)  # type: ignore[union-attr]
    assert where(store) == {2: "cold", 3: "warm"}


def test_restore_or_recompute_takes_the_cheaper_in_priced_cases() -> None:
    rng = random.Random(3)
    choices = set()
    for _ in range(60):
        links = {
            name: Link(rng.choice([0, 0.001, 0.05]), 10 ** rng.uniform(3, 6)) for name in ("warm", "cold")
        }
        costs = LinearCosts(links, rng.choice([1e-4, 1e-3]), rng.choice([0.0, 1e-6]))
        store = make(warm=2000, cold=2000, costs=costs)
        tokens, size = rng.randint(5, 400), rng.randint(50, 2000)
        key = put(store, 1, size, tokens)
        tier = rng.choice(["warm", "cold"])
        if tier == "cold":
            store.demote(key)
        shared = rng.randint(1, tokens)
        hit = store.lookup([1] * shared + [2])
        assert hit is not None and hit.num_tokens == shared
        choice = store.restore_or_recompute(hit)
        link = links[tier]
        load = link.latency_seconds + size / link.bytes_per_second
        prefill = shared * costs.seconds_per_token + shared**2 * costs.seconds_per_token_squared
        assert choice.load_seconds == pytest.approx(load)
        assert choice.prefill_seconds == pytest.approx(prefill)
        assert choice.restore == (load < prefill)
        choices.add((tier, choice.restore))
    assert len(choices) == 4, "the cases do not show both answers in both tiers"


def test_an_8b_prefix_of_32k_tokens_loads_over_pcie_but_20_tokens_do_not_over_nvme() -> None:
    """131072 bytes a token, 1.494 s for 32768 tokens; PCIe 4 at 25 GB/s, NVMe at 7 GB/s after 1 ms."""
    links = {"warm": Link(0.0, 25e9), "cold": Link(1e-3, 7e9)}
    costs = LinearCosts(links, 1.494 / 32768)
    assert costs.load_seconds(32768 * 131072, "warm") == pytest.approx(0.172, abs=0.001)
    assert costs.load_seconds(32768 * 131072, "cold") == pytest.approx(0.615, abs=0.001)
    assert costs.load_seconds(20 * 131072, "cold") > costs.prefill_seconds(20)
