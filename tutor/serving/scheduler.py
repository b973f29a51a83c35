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
from tutor.serving.tracing import Emit, Tracer


class _Step:
    """The step being put together: what is given to whom, and how much of the budget is left."""

    __slots__ = ("left", "preempted", "reason", "shares")

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.shares: list[ScheduledRequest] = []
        self.preempted = False
        self.reason = ""

    def add(self, request: Request, num_tokens: int) -> None:
        assert request.slot is not None
        start = request.num_computed_tokens
        end = start + num_tokens
        tokens = request.token_ids
        self.shares.append(
            ScheduledRequest(
                request.request_id, request.slot, tokens[start:end], start, end == len(tokens),
                len(tokens) - len(request.prompt_token_ids), request.sampling,
            )
        )  # fmt: skip
        self.left -= num_tokens


class Scheduler:
    """Owns the waiting and running queues and the slots. Without `emit` nothing is recorded."""

    def __init__(self, config: EngineConfig, emit: Emit | None = None) -> None:
        self.config = config
        self.policy = batching_policy(config.batching)
        self._tell = Tracer(emit)
        self.kv = KVCacheManager(config, self._tell)
        self.requests: dict[str, Request] = {}
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._slots: list[Request | None] = [None] * config.max_num_seqs

    # --- the queue ------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. RequestTooLarge if it could not run even alone."""
        self._check_size(request)
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id} is already in the engine")
        self.requests[request.request_id] = request
        self.waiting.append(request)
        self._tell.arrived(request, len(self.waiting) - 1)

    def _check_size(self, request: Request) -> None:
        needed = self.kv.blocks_for(request.num_prompt_tokens + request.max_tokens)
        if needed > self.config.num_blocks:
            raise RequestTooLarge(
                f"Request {request.request_id} needs {needed} blocks of {self.config.block_size} tokens "
                f"({request.num_prompt_tokens} prompt + {request.max_tokens} output); "
                f"there are {self.config.num_blocks}."
            )
        if not self.config.chunked_prefill:
            # A preempted request is recomputed with its output, which then has to fit as well.
            longest = request.num_prompt_tokens + request.max_tokens
            if longest > self.config.max_num_batched_tokens:
                raise RequestTooLarge(
                    f"Request {request.request_id} may grow to {longest} tokens; without chunked prefill "
                    f"they must fit the budget of {self.config.max_num_batched_tokens} tokens a step."
                )

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
            if step.left and request.status is RequestStatus.RUNNING:
                self._schedule_running(request, step)
        if self.waiting and not step.preempted:
            self._admit(step)
        self._tell.step(
            step.shares, self.requests, num_running=len(self.running), num_waiting=len(self.waiting),
            budget=self.config.max_num_batched_tokens, reason=step.reason,
        )  # fmt: skip
        return SchedulerOutput(step.shares, self.kv.take_operations())

    def _schedule_running(self, request: Request, step: _Step) -> None:
        num_new = min(request.num_uncomputed_tokens, step.left)
        if not self.kv.has_room(request, num_new):
            while not self.kv.can_allocate(request, num_new):
                victim = self._victim(step)
                self._preempt(victim, request)
                step.preempted = True
                step.reason = f"blocks ran out: {victim.name} was preempted"
                if victim is request:
                    return
            self.kv.allocate(request, num_new)
        step.add(request, num_new)

    def _victim(self, step: _Step) -> Request:
        """The request that joined last among those that the step has given nothing yet."""
        scheduled = {share.request_id for share in step.shares}
        return next(r for r in reversed(self.running) if r.request_id not in scheduled)

    def _admit(self, step: _Step) -> None:
        while self.waiting:
            request = self.waiting[0]
            blocked = self._why_not(request, step)
            if blocked:
                step.reason = f"{request.name} waits: {blocked}"
                return
            matched = self.kv.match(request)
            cached = len(matched) * self.config.block_size
            num_new = min(request.num_tokens - cached, step.left)
            if not self.config.chunked_prefill and num_new < request.num_tokens - cached:
                step.reason = f"{request.name} waits: its prompt does not fit the {step.left} tokens left"
                return
            if not self.kv.can_allocate(request, num_new, matched):
                needed = self.kv.blocks_for(cached + num_new) - len(matched)
                free = self.kv.pool.num_free
                step.reason = f"{request.name} waits: it needs {needed} new blocks, {free} are free"
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
            return f"the step's budget of {self.config.max_num_batched_tokens} tokens is used up"
        return ""

    def _start(self, request: Request, matched: list[KVCacheBlock]) -> None:
        slot = self._slots.index(None)
        self._slots[slot] = request
        request.slot = slot
        resumed = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        self._tell.admitted(request, len(matched) * self.config.block_size, resumed)
        request.num_cached_tokens = request.num_computed_tokens = self.kv.share_prefix(request, matched)

    def _preempt(self, victim: Request, winner: Request) -> None:
        self._tell.preempted(victim, winner)
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
        self._tell.emitted(request, token_id, text)
        if finished is not None:
            self._finish(request, finished)

    def _finish(self, request: Request, status: RequestStatus) -> None:
        self._tell.finished(request, status.value)
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
        self._tell.slot_released(request)
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
