"""What the next step runs: running requests first, then waiting ones, within one token budget.

A step may mix decodes (one token each) and prefill chunks: the scheduler only asks how many tokens of a
request have no KV yet. When blocks run out, the request that joined last loses its blocks, goes back to
the front of the waiting queue, and is recomputed or restored later.
"""

from __future__ import annotations

from tutor.serving.admission import WaitingQueue, check_size
from tutor.serving.block_pool import KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import UnknownRequest, ensure
from tutor.serving.kv_cache_manager import KVCacheManager
from tutor.serving.outputs import SchedulerOutput
from tutor.serving.policy import batching_policy
from tutor.serving.request import Request, RequestStatus
from tutor.serving.speculator import Speculator
from tutor.serving.step_plan import StepPlan
from tutor.serving.tiering import Loadable, Tiering
from tutor.serving.tracing import Tracer


class Scheduler:
    """Owns the waiting and running queues and the slots; every decision goes to the tracer."""

    def __init__(
        self,
        config: EngineConfig,
        tracer: Tracer,
        speculator: Speculator | None = None,
        tiering: Tiering | None = None,
    ) -> None:
        self.config = config
        self.speculator = speculator
        self.tiering = tiering
        self.policy = batching_policy(config.batching)
        self._tell = tracer
        self.kv = KVCacheManager(config, self._tell)
        self.requests: dict[str, Request] = {}
        self.waiting = WaitingQueue(config.admission, config.max_passed_over)
        self.running: list[Request] = []
        self._slots: list[Request | None] = [None] * config.max_num_seqs

    # --- the queue ------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. RequestTooLarge if it could not run even alone; ConfigError for its settings."""
        request.sampling.check()
        check_size(request, self.config)
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id} is already in the engine")
        self.requests[request.request_id] = request
        self.waiting.append(request)
        self._tell.arrived(request, len(self.waiting) - 1)

    def abort(self, request_id: str) -> None:
        """Finish a request now and free its blocks."""
        request = self.requests.get(request_id)
        if request is None:
            raise UnknownRequest(f"There is no request {request_id} in the engine.")
        if request.slot is None:
            self.waiting.remove(request)
            self.kv.drop_swapped(request)
        else:
            self.running.remove(request)
        self.finish(request, RequestStatus.FINISHED_ABORTED)
        self.release_batch()

    @property
    def has_work(self) -> bool:
        return bool(self.running) or bool(len(self.waiting))

    # --- one step -------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. It may be empty only when nothing is left to do."""
        step = StepPlan(self.config.max_num_batched_tokens)
        self.policy.begin_step(len(self.running), len(self.waiting), self.config.max_num_seqs)
        order = self._running_in_order()
        for place, request in enumerate(order):
            if step.left <= 0:
                break
            if request.status is RequestStatus.RUNNING:  # not preempted earlier in this step
                if self.speculator is not None and request.is_decoding:
                    self._draft(request, step, len(order) - place - 1)
                self._schedule_running(request, step)
        if len(self.waiting) and not step.preempted:
            self._admit(step)
        self._tell.step(
            step.shares, self.requests, num_running=len(self.running), num_waiting=len(self.waiting),
            budget=self.config.max_num_batched_tokens, reason=step.reason,
        )  # fmt: skip
        return SchedulerOutput(step.shares, self.kv.take_operations())

    def _running_in_order(self) -> list[Request]:
        """Decodes first: each costs one token and has a user waiting for it. Or prefills first."""
        decodes = [r for r in self.running if len(r.token_ids) - r.num_computed_tokens == 1]
        if len(decodes) == len(self.running):
            return decodes
        prefills = [r for r in self.running if len(r.token_ids) - r.num_computed_tokens != 1]
        return decodes + prefills if self.config.order == "decode_first" else prefills + decodes

    def _schedule_running(self, request: Request, step: StepPlan) -> None:
        # Written for speed: with hundreds of decodes this is the engine's hottest path.
        num_new = len(request.token_ids) - request.num_computed_tokens
        if num_new > step.left:
            num_new = step.left
        holds = len(request.block_table) * self.config.block_size
        if request.num_computed_tokens + num_new <= holds or self._make_room(request, num_new, step):
            step.add(request, num_new)

    def _make_room(self, request: Request, num_new: int, step: StepPlan) -> bool:
        """Take the blocks that are missing; False if the request itself had to give way."""
        while not self.kv.can_allocate(request, num_new):
            victim = self._victim(step)
            self._preempt(victim, request)
            step.preempted = True
            step.reason = f"blocks ran out: {victim.name} was preempted"
            if victim is request:
                return False
        self.kv.allocate(request, num_new)
        return True

    def _draft(self, request: Request, step: StepPlan, num_others: int) -> None:
        """Guess tokens for the step to verify, from budget and blocks that nobody else needs."""
        assert self.speculator is not None
        limit = min(step.left - 1 - num_others, request.max_tokens - request.num_output_tokens - 1)
        drafts = self.speculator.draft(request, len(self.running), limit)
        if drafts and self.kv.can_allocate(request, 1 + len(drafts)):
            self.kv.allocate(request, 1 + len(drafts))
            request.drafts = drafts
            request.draft_source = self.speculator.drafter.name

    def _victim(self, step: StepPlan) -> Request:
        """The request that joined last among those that the step has given nothing yet."""
        scheduled = {share.request_id for share in step.shares}
        return next(r for r in reversed(self.running) if r.request_id not in scheduled)

    def _preempt(self, victim: Request, winner: Request) -> None:
        way = self.config.preemption if victim.num_computed_tokens else "recompute"
        self._tell.preempted(victim, winner, way)
        if way == "swap":
            self.kv.swap_out(victim)
        else:
            self.kv.free(victim, "preempted")
        self._release_slot(victim)
        self.running.remove(victim)
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed_tokens = victim.num_cached_tokens = 0
        victim.num_preemptions += 1
        self.waiting.put_back(victim)

    # --- admission ------------------------------------------------------------------------------

    def _admit(self, step: StepPlan) -> None:
        """Let waiting requests join until a slot, the budget or blocks are missing."""
        blocked = self._why_nobody(step)
        if blocked:
            first = next(iter(self.waiting))
            step.reason = f"{first.name} waits: {blocked}"
            return
        for request, why in self.waiting.order(lambda r: len(self.kv.match(r)) * self.config.block_size):
            matched = self._shareable(request)
            if isinstance(matched, Request):
                # Computing the same prefix twice would waste the step; it will be shared soon.
                step.reason = f"{request.name} waits: {matched.name} is computing its prefix"
                continue
            blocked = self._why_nobody(step) or self._why_not(request, matched, step)
            if blocked:
                step.reason = f"{request.name} waits: {blocked}"
                return
            self._start(request, matched, why, step)

    def _shareable(self, request: Request) -> list[KVCacheBlock] | Request:
        """Blocks whose KV the request can share, or the request that is computing them right now."""
        if request.num_swapped_tokens:
            return []
        matched = self.kv.match(request)
        parent = self.requests.get(request.fork_of) if self.config.shared_cells else None
        if parent is not None and request.status is RequestStatus.WAITING:
            if parent.num_computed_tokens < request.num_tokens - 1:
                return parent
            return max(matched, self.kv.full_blocks(parent, request.num_tokens - 1), key=len)
        sibling = self.kv.computed_by(request, len(matched))
        return matched if sibling is None else self.requests[sibling]

    def _why_nobody(self, step: StepPlan) -> str:
        """Why no request at all can join this step; empty if one may."""
        if not self.policy.may_admit():
            return "a static batch takes nobody in until all of it is done"
        if None not in self._slots:
            return f"all {len(self._slots)} slots are taken"
        if step.left <= 0:
            return f"the step's budget of {self.config.max_num_batched_tokens} tokens is used up"
        return ""

    def _why_not(self, request: Request, matched: list[KVCacheBlock], step: StepPlan) -> str:
        """Why this request cannot join this step; empty if it can."""
        num_new = request.num_tokens - len(matched) * self.config.block_size
        if not self.config.chunked_prefill and num_new > step.left:
            return f"its {num_new} tokens do not fit the {step.left} that are left of the budget"
        missing = self.kv.missing_for(request, matched, self._first_tokens(request, matched, step))
        if missing > 0:
            what = "an unbroken run of blocks" if self.config.allocator == "contiguous" else "blocks"
            return f"{missing} more {what} would have to be free ({self.kv.pool.num_free} are)"
        return ""

    def _first_tokens(self, request: Request, matched: list[KVCacheBlock], step: StepPlan) -> int:
        """Tokens that need room when the request joins: restored ones, and its share of this step."""
        restored = request.num_swapped_tokens
        return restored + min(
            request.num_tokens - restored - len(matched) * self.config.block_size, step.left
        )

    def _start(self, request: Request, matched: list[KVCacheBlock], why: str, step: StepPlan) -> None:
        self.waiting.admit(request)
        self.policy.admitted()
        slot = self._slots.index(None)
        self._slots[slot] = request
        request.slot = slot
        resumed = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        cached = len(matched) * self.config.block_size
        saved = self._saved(request, cached)
        told = 0 if saved is not None else cached or request.num_swapped_tokens
        self._tell.admitted(request, told, why, resumed)
        if request.num_swapped_tokens:
            self.kv.swap_in(request)
        elif saved is not None:
            self.kv.load(request, saved)
        else:
            request.num_cached_tokens = request.num_computed_tokens = self.kv.begin(request, matched)
        num_new = min(request.num_uncomputed_tokens, step.left)
        self.kv.allocate(request, num_new)
        if request.fork_of and not resumed:
            self.kv.copy_on_write(self.requests.get(request.fork_of), request)
        step.add(request, num_new)

    def _saved(self, request: Request, cached: int) -> Loadable | None:
        """A saved sequence that is worth loading and fits, with what the step adds to it."""
        if self.tiering is None or request.num_swapped_tokens:
            return None
        saved = self.tiering.worth_loading(request, cached)
        needed = self.kv.blocks_for(request.num_tokens)
        return saved if saved is not None and needed <= self.kv.pool.num_free else None

    # --- endings --------------------------------------------------------------------------------

    def finish(self, request: Request, status: RequestStatus) -> None:
        """End a request: its blocks are free, its slot too unless the batch is static."""
        self._tell.finished(request, status.value)
        if request.slot is not None:
            if self.tiering is not None and self.tiering.worth_keeping(request):
                self.kv.archive(request)
            self.kv.free(request, status.value)
            if not self.policy.holds_slots:
                self._release_slot(request)
        if self.speculator is not None:
            self.speculator.forget(request)
        request.status = status
        del self.requests[request.request_id]

    def release_batch(self) -> None:
        """In static batching the slots come free together, when the last request of the batch is done."""
        if not self.running:
            for holder in list(self._slots):
                if holder is not None:
                    self._release_slot(holder)

    def _release_slot(self, request: Request) -> None:
        assert request.slot is not None
        self._slots[request.slot] = None
        self._tell.slot_released(request)
        request.slot = None

    def check_integrity(self) -> None:
        self.kv.check_integrity()
        self.waiting.check_integrity()
        for part in (self.speculator, self.tiering):
            if part is not None:
                part.check_integrity()
        waiting = list(self.waiting)
        ensure(len(self.running) <= self.config.max_num_seqs, "more requests run than max_num_seqs")
        for request in self.running:
            ensure(request.status is RequestStatus.RUNNING, f"{request.name} runs but is {request.status}")
            ensure(
                request.slot is not None and self._slots[request.slot] is request,
                f"{request.name} and its slot disagree",
            )
            ensure(request not in waiting, f"{request.name} runs and waits")
        for request in waiting:
            ensure(request.slot is None, f"{request.name} waits with a slot")
            ensure(not request.block_table, f"{request.name} waits with blocks")
        known = len(self.running) + len(waiting)
        ensure(known == len(self.requests), f"{len(self.requests)} requests, {known} in the queues")
