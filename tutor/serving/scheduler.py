"""What the next step runs: running requests first, then waiting ones, within one token budget.

A step may mix decodes (one token each) and prefill chunks: the scheduler only asks how many tokens of a
request have no KV yet. When blocks run out, the request that joined last loses its blocks, goes back to
the front of the waiting queue and is recomputed later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tutor.serving.block_pool import KVCacheBlock
from tutor.serving.config import EngineConfig
from tutor.serving.errors import RequestTooLarge, UnknownRequest, ensure
from tutor.serving.kv_cache_manager import KVCacheManager
from tutor.serving.outputs import ModelRunnerOutput, ScheduledRequest, SchedulerOutput
from tutor.serving.policy import batching_policy
from tutor.serving.request import Request, RequestStatus
from tutor.trace import events as ev

Emit = Callable[[ev.AnyEvent], None]


class _Step:
    """The step being put together."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.left = budget
        self.shares: list[ScheduledRequest] = []
        self.events: list[ev.ScheduledTokens] = []
        self.preempted = False
        self.reason = ""

    def add(self, request: Request, num_tokens: int) -> None:
        assert request.slot is not None
        start = request.num_computed_tokens
        end = start + num_tokens
        self.shares.append(
            ScheduledRequest(
                request.request_id, request.slot, request.token_ids(start, end), start,
                end == request.num_tokens, len(request.output_token_ids), request.sampling,
            )
        )  # fmt: skip
        phase = "decode" if request.is_decoding else "prefill"
        self.events.append(
            ev.ScheduledTokens(request.request_id, request.slot, start, num_tokens, phase,
                               self._why(request, num_tokens))
        )  # fmt: skip
        self.left -= num_tokens

    def _why(self, request: Request, num_tokens: int) -> str:
        if request.is_decoding:
            return "decodes its newest token"
        left = request.num_uncomputed_tokens
        if num_tokens == left:
            return f"gets all {left} tokens it still has to compute"
        given = self.budget - self.left
        return f"gets {num_tokens} of {left} tokens: budget {self.budget} - {given} already given"


class Scheduler:
    """Owns the waiting and running queues and the slots."""

    def __init__(self, config: EngineConfig, emit: Emit) -> None:
        self.config = config
        self.policy = batching_policy(config.batching)
        self.kv = KVCacheManager(config, emit)
        self._emit = emit
        self.requests: dict[str, Request] = {}
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._slots: list[Request | None] = [None] * config.max_num_seqs

    # --- the queue ------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. RequestTooLarge if it could not run even alone."""
        needed = self.kv.blocks_for(request.num_prompt_tokens + request.max_tokens)
        if needed > self.config.num_blocks:
            raise RequestTooLarge(
                f"Request {request.request_id} needs {needed} blocks of {self.config.block_size} tokens "
                f"({request.num_prompt_tokens} prompt + {request.max_tokens} output); "
                f"there are {self.config.num_blocks}."
            )
        if not self.config.chunked_prefill and request.num_prompt_tokens > self.config.max_num_batched_tokens:
            raise RequestTooLarge(
                f"Request {request.request_id} has {request.num_prompt_tokens} prompt tokens; without "
                f"chunked prefill they must fit the budget of {self.config.max_num_batched_tokens} a step."
            )
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id} is already in the engine")
        self.requests[request.request_id] = request
        self.waiting.append(request)
        self._emit(
            ev.RequestArrived(
                request.request_id,
                request.label,
                request.num_prompt_tokens,
                request.max_tokens,
                request.prompt,
            )
        )
        place = len(self.waiting) - 1
        reason = f"{place} before it" if place else "next to be admitted"
        self._emit(ev.RequestQueued(request.request_id, place, reason))

    def abort(self, request_id: str) -> None:
        """Finish a request now and free its blocks."""
        request = self.requests.get(request_id)
        if request is None:
            raise UnknownRequest(f"There is no request {request_id} in the engine.")
        if request in self.waiting:
            self.waiting.remove(request)
        self._finish(request, RequestStatus.FINISHED_ABORTED)
        if request in self.running:
            self.running.remove(request)
        self._release_batch()

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    # --- one step -------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. It may be empty only when nothing is left to do."""
        step = _Step(self.config.max_num_batched_tokens)
        self.policy.begin_step(len(self.running), len(self.waiting), self.config.max_num_seqs)
        # Decodes first: each costs one token and has a user waiting for it.
        for request in sorted(self.running, key=lambda r: not r.is_decoding):
            if request.status is RequestStatus.RUNNING and step.left:
                self._schedule_running(request, step)
        if not step.preempted:
            self._admit(step)
        operations = self.kv.take_operations()
        self._emit(
            ev.StepScheduled(
                tuple(step.events), len(self.running), len(self.waiting), step.budget, step.reason
            )
        )
        return SchedulerOutput(tuple(step.shares), operations)

    def _schedule_running(self, request: Request, step: _Step) -> None:
        num_new = min(request.num_uncomputed_tokens, step.left)
        while not self.kv.can_allocate(request, num_new):
            scheduled = {share.request_id for share in step.shares}
            victim = next(r for r in reversed(self.running) if r.request_id not in scheduled)
            self._preempt(victim, request)
            step.preempted = True
            step.reason = f"blocks ran out: {victim.label} was preempted"
            if victim is request:
                return
        self.kv.allocate(request, num_new)
        step.add(request, num_new)

    def _admit(self, step: _Step) -> None:
        while self.waiting:
            request = self.waiting[0]
            blocked = self._why_not(request, step)
            if blocked:
                step.reason = f"{request.label} waits: {blocked}"
                return
            matched = self.kv.match(request)
            cached = len(matched) * self.config.block_size
            num_new = min(request.num_tokens - cached, step.left)
            if not self.config.chunked_prefill and num_new < request.num_tokens - cached:
                step.reason = f"{request.label} waits: its prompt does not fit the {step.left} tokens left"
                return
            if not self.kv.can_allocate(request, num_new, matched):
                needed = self.kv.blocks_for(cached + num_new) - len(matched)
                free = self.kv.pool.num_free
                step.reason = f"{request.label} waits: it needs {needed} new blocks, {free} are free"
                return
            self.waiting.popleft()
            self.policy.admitted()
            self._start(request, matched)
            self.kv.allocate(request, num_new)
            step.add(request, num_new)

    def _why_not(self, request: Request, step: _Step) -> str:
        """Why the head of the queue cannot join this step; empty if it may."""
        if not self.policy.may_admit():
            return "a static batch takes nobody in until all of it is done"
        if None not in self._slots:
            return f"all {len(self._slots)} slots are taken"
        if step.left == 0:
            return f"the step's budget of {step.budget} tokens is used up"
        return ""

    def _start(self, request: Request, matched: list[KVCacheBlock]) -> None:
        slot = self._slots.index(None)
        self._slots[slot] = request
        request.slot = slot
        resumed = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        cached = len(matched) * self.config.block_size
        reason = f"slot {slot} is free, budget and blocks suffice"
        if resumed:
            reason = f"resumes in slot {slot}: {request.num_tokens - cached} tokens are recomputed"
        self._emit(ev.RequestScheduled(request.request_id, cached, reason))
        self._emit(ev.SlotAssigned(slot, request.request_id))
        request.num_cached_tokens = request.num_computed_tokens = self.kv.share_prefix(request, matched)

    def _preempt(self, victim: Request, winner: Request) -> None:
        name = "its own next token" if victim is winner else f"{winner.label}'s next tokens"
        reason = f"no free block for {name}; it joined last, so it gives up its blocks"
        self._emit(ev.RequestPreempted(victim.request_id, victim.num_computed_tokens, reason))
        self.kv.free(victim, "preempted")
        self._release_slot(victim)
        self.running.remove(victim)
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed_tokens = victim.num_cached_tokens = 0
        victim.num_preemptions += 1
        self.waiting.appendleft(victim)

    # --- after the step -------------------------------------------------------------------------

    def update(
        self, output: SchedulerOutput, result: ModelRunnerOutput, piece: Callable[[int], bytes]
    ) -> None:
        """Book the step's results: KV that now exists, sampled tokens, finished requests."""
        for share in output.scheduled:
            request = self.requests[share.request_id]
            if request.status is not RequestStatus.RUNNING:
                continue  # aborted while the step ran
            request.num_computed_tokens += len(share.token_ids)
            self.kv.store_full_blocks(request)
            if share.samples:
                self._take_token(request, result.sampled[share.request_id], piece)
        self.running = [r for r in self.running if not r.status.is_finished]
        self._release_batch()

    def _take_token(self, request: Request, token_id: int, piece: Callable[[int], bytes]) -> None:
        is_stop = token_id in request.stop_token_ids
        text = request.append(token_id, b"" if is_stop else piece(token_id))
        finished = request.finish_reason()
        if finished is not None:
            text += request.flush_text()
        self._emit(ev.TokensEmitted(request.request_id, (token_id,), text))
        if finished is not None:
            self._finish(request, finished)

    def _finish(self, request: Request, status: RequestStatus) -> None:
        self._emit(ev.RequestFinished(request.request_id, status.value))
        if request.slot is not None:
            self.kv.free(request, status.value)
            if not self.policy.holds_slots:
                self._release_slot(request)
        request.status = status
        del self.requests[request.request_id]

    def _release_batch(self) -> None:
        """In static batching the slots come free together, when the last request of the batch is done."""
        if self.running:
            return
        for holder in list(self._slots):
            if holder is not None:
                self._release_slot(holder)

    def _release_slot(self, request: Request) -> None:
        assert request.slot is not None
        self._slots[request.slot] = None
        self._emit(ev.SlotReleased(request.slot, request.request_id))
        request.slot = None

    def check_integrity(self) -> None:
        self.kv.check_integrity()
        ensure(len(self.running) <= self.config.max_num_seqs, "more requests run than max_num_seqs")
        for request in self.running:
            ensure(
                request.status is RequestStatus.RUNNING, f"{request.request_id} runs but is {request.status}"
            )
            ensure(request.slot is not None and self._slots[request.slot] is request,
                   f"{request.request_id} and its slot disagree")  # fmt: skip
            ensure(request not in self.waiting, f"{request.request_id} runs and waits")
        for request in self.waiting:
            ensure(request.slot is None, f"{request.request_id} waits with a slot")
            ensure(not self.kv.table(request.request_id), f"{request.request_id} waits with blocks")
        known = len(self.running) + len(self.waiting)
        ensure(known == len(self.requests), f"{len(self.requests)} requests, {known} in the queues")
