"""Random operation sequences on each stateful class, with check_integrity() after every operation."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tutor.serving.admission import WaitingQueue
from tutor.serving.block_pool import BlockPool, KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import IntegrityError
from tutor.serving.kv_cache_manager import KVCacheManager
from tutor.serving.prefix_cache import extend_chain
from tutor.serving.request import Request
from tutor.serving.tracing import Tracer

SIZE = 4


class PoolMachine(RuleBasedStateMachine):
    """Blocks are taken, stored, shared, released and forgotten in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(12)
        self.held: list[KVCacheBlock] = []
        self.contents = 0

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        if self.pool.num_free >= count:
            taken, _ = self.pool.take(count)
            assert all(block.ref_cnt == 1 for block in taken)
            self.pool.forget([block for block in taken if block.block_hash])
            self.held += taken

    @precondition(lambda self: self.held)
    @rule(data=st.data(), old=st.booleans())
    def store(self, data: st.DataObject, old: bool) -> None:
        block = data.draw(st.sampled_from(self.held))
        if block.block_hash:
            return
        self.contents += not old
        links: list[tuple[int, tuple[int, ...]]] = []
        extend_chain(links, [self.contents] * SIZE, SIZE)
        stored = self.pool.store([block], links)
        assert stored == ([block] if self.pool.find(links) == [block] else [])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held))
        self.pool.share([block])
        self.held.append(block)

    @rule(content=st.integers(0, 6))
    def share_cached(self, content: int) -> None:
        links: list[tuple[int, tuple[int, ...]]] = []
        extend_chain(links, [content] * SIZE, SIZE)
        found = self.pool.find(links)
        self.pool.share(found)
        self.held += found

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        gone, _ = self.pool.release([block])
        assert gone == ([] if block in self.held else [block])

    @rule(count=st.integers(1, 3))
    def take_run(self, count: int) -> None:
        start = self.pool.find_run(count)
        if start is not None:
            self.held += self.pool.take_run(start, count)

    @invariant()
    def holds(self) -> None:
        self.pool.check_integrity()
        assert self.pool.num_used == len({block.block_id for block in self.held})
        assert sum(block.ref_cnt for block in self.pool.blocks) == len(self.held)


class ManagerMachine(RuleBasedStateMachine):
    """Requests begin on matched prefixes, grow, store blocks, swap and end."""

    @initialize(parks=st.integers(0, 6), caching=st.booleans())
    def build(self, parks: int, caching: bool) -> None:
        config = EngineConfig(
            max_num_seqs=4, max_num_batched_tokens=64, block_size=SIZE, num_blocks=20, max_parked=parks,
            prefix_caching=caching,
        )  # fmt: skip
        self.kv = KVCacheManager(config, Tracer(None))
        self.slots: dict[int, Request] = {}
        self.swapped: list[Request] = []
        self.count = 0

    @rule(prefix=st.integers(0, 2), length=st.integers(1, 24))
    def begin(self, prefix: int, length: int) -> None:
        free = next((slot for slot in range(4) if slot not in self.slots), None)
        self.count += 1
        request = Request(f"r{self.count}", [prefix] * length, 8)
        matched = self.kv.match(request)
        assert len(matched) * SIZE < length
        if free is None or self.kv.missing_for(request, matched, length - len(matched) * SIZE) > 0:
            return
        request.slot = free
        self.slots[free] = request
        request.num_computed_tokens = self.kv.begin(request, matched)
        self.kv.allocate(request, request.num_uncomputed_tokens)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), count=st.integers(1, 9))
    def compute(self, data: st.DataObject, count: int) -> None:
        request = self.slots[data.draw(st.sampled_from(sorted(self.slots)))]
        if request.num_uncomputed_tokens == 0:
            request.token_ids.append(7)
        count = min(count, request.num_uncomputed_tokens)
        if self.kv.can_allocate(request, count):
            self.kv.allocate(request, count)
            request.num_computed_tokens += count
            self.kv.store_full_blocks(request)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), swap=st.booleans())
    def end(self, data: st.DataObject, swap: bool) -> None:
        request = self.slots.pop(data.draw(st.sampled_from(sorted(self.slots))))
        if swap and request.num_computed_tokens:
            self.kv.swap_out(request)
            self.swapped.append(request)
        else:
            self.kv.free(request, "done")
        assert self.kv.table(request.request_id) == ()
        request.slot = None
        request.num_computed_tokens = 0

    @precondition(lambda self: self.swapped and len(self.slots) < 4)
    @rule()
    def swap_in(self) -> None:
        request = self.swapped[0]
        if self.kv.missing_for(request, [], request.num_swapped_tokens) <= 0:
            self.swapped.pop(0)
            request.slot = next(slot for slot in range(4) if slot not in self.slots)
            self.slots[request.slot] = request
            self.kv.swap_in(request)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "kv"):
            self.kv.check_integrity()

    def teardown(self) -> None:
        if hasattr(self, "kv"):
            for request in self.slots.values():
                self.kv.free(request, "done")
            self.kv.check_integrity()
            assert self.kv.pool.num_used == 0


class QueueMachine(RuleBasedStateMachine):
    """Requests arrive, are admitted out of order, put back and removed."""

    @initialize(
        admission=st.sampled_from(["fcfs", "priority", "shortest", "longest_prefix"]), limit=st.integers(0, 3)
    )
    def build(self, admission: str, limit: int) -> None:
        self.queue = WaitingQueue(admission, limit)
        self.limit = limit
        self.waiting: set[str] = set()
        self.count = 0

    @rule(priority=st.integers(0, 3), length=st.integers(1, 5))
    def arrive(self, priority: int, length: int) -> None:
        self.count += 1
        self.queue.append(Request(f"r{self.count}", [1] * length, 1, priority=priority))
        self.waiting.add(f"r{self.count}")

    @precondition(lambda self: getattr(self, "waiting", None))
    @rule(back=st.booleans())
    def admit_next(self, back: bool) -> None:
        request, why = self.queue.order(lambda r: r.num_prompt_tokens)[0]
        assert why
        self.queue.admit(request)
        self.waiting.discard(request.request_id)
        if back:
            self.queue.put_back(request)
            self.waiting.add(request.request_id)
            assert next(iter(self.queue)) is request

    @precondition(lambda self: getattr(self, "waiting", None))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.queue)))
        self.queue.remove(request)
        self.waiting.discard(request.request_id)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "queue"):
            self.queue.check_integrity()
            assert {r.request_id for r in self.queue} == self.waiting
            assert len(self.queue.order(lambda r: 0)) == len(self.queue)


@pytest.mark.parametrize("machine", [PoolMachine, ManagerMachine, QueueMachine])
def test_any_sequence_of_operations(machine: type[RuleBasedStateMachine]) -> None:
    case = machine.TestCase()
    case.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
    case.runTest()


def test_freeing_twice_is_noticed() -> None:
    pool = BlockPool(2)
    blocks, _ = pool.take(1)
    pool.release(blocks)
    with pytest.raises(IntegrityError, match="freed twice"):
        pool.release(blocks)


@pytest.mark.parametrize("damage", ["count", "hash", "index"])
def test_integrity_checks_notice_damage(damage: str) -> None:
    config = EngineConfig(max_num_seqs=2, max_num_batched_tokens=64, block_size=SIZE, num_blocks=8)
    kv = KVCacheManager(config, Tracer(None))
    request = Request("a", list(range(9)), 4)
    request.slot = 0
    kv.begin(request, [])
    kv.allocate(request, 9)
    request.num_computed_tokens = 9
    kv.store_full_blocks(request)
    kv.check_integrity()
    block = request.block_table[0]
    match damage:
        case "count":
            block.ref_cnt += 1
        case "hash":
            block.block_hash += 1
        case "index":
            block.index = 5
    with pytest.raises(IntegrityError):
        kv.check_integrity()
