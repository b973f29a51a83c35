"""After a step: KV that now exists, sampled tokens, rejected drafts, finished requests."""

from __future__ import annotations

from collections.abc import Callable

from tutor.serving.outputs import ModelRunnerOutput, ScheduledRequest, SchedulerOutput
from tutor.serving.request import Request, RequestStatus
from tutor.serving.scheduler import Scheduler
from tutor.serving.tracing import Tracer

Piece = Callable[[int], bytes]


class Bookkeeper:
    """Books the results of each step into the scheduler's requests."""

    def __init__(self, scheduler: Scheduler, tracer: Tracer, piece: Piece) -> None:
        self._scheduler = scheduler
        self._tell = tracer
        self._piece = piece

    def update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> None:
        """Book one step. Requests that were aborted while it ran are skipped."""
        scheduler = self._scheduler
        for share in output.scheduled:
            request = scheduler.requests.get(share.request_id)
            if request is None or request.status is not RequestStatus.RUNNING:
                continue
            new = result.sampled[share.request_id] if share.samples else []
            self._advance(request, share, len(new))
            finished = self._take(request, new) if new else None
            if request.sampling.logprobs and new:
                told = result.logprobs[share.request_id]
                request.logprobs += told[: request.num_output_tokens - len(request.logprobs)]
            scheduler.kv.store_full_blocks(request)
            if finished is not None:
                scheduler.finish(request, finished)
        scheduler.running = [r for r in scheduler.running if not r.status.is_finished]
        scheduler.release_batch()

    def _advance(self, request: Request, share: ScheduledRequest, num_new: int) -> None:
        """Count the computed tokens; drafts count as far as they were accepted."""
        request.num_computed_tokens += len(share.token_ids)
        speculator = self._scheduler.speculator
        if speculator is None or not share.samples or not share.num_output_tokens:
            return
        accepted = num_new - 1
        speculator.observe(request, share.num_drafts, accepted)
        if share.num_drafts:
            request.drafts = []
            self._tell.verified(request, share.token_ids[-share.num_drafts :], accepted)
        if accepted < share.num_drafts:
            request.num_computed_tokens -= share.num_drafts - accepted
            self._scheduler.kv.shrink(request)

    def _take(self, request: Request, token_ids: list[int]) -> RequestStatus | None:
        """Append sampled tokens until one of them ends the request."""
        text = ""
        finished = None
        for count, token_id in enumerate(token_ids, start=1):
            piece, finished = request.append(token_id, self._piece(token_id))
            text += piece
            if finished is not None:
                token_ids = token_ids[:count]
                # Accepted drafts behind the end have KV, but they are not part of the request.
                request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens)
                break
        self._tell.emitted(request, token_ids, text)
        return finished
