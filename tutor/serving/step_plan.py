"""The step that the scheduler is putting together."""

from __future__ import annotations

from tutor.serving.outputs import ScheduledRequest
from tutor.serving.request import Request


class StepPlan:
    """The step being put together: what is given to whom, and how much of the budget is left."""

    __slots__ = ("left", "preempted", "reason", "shares")

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.shares: list[ScheduledRequest] = []
        self.preempted = False
        self.reason = ""

    def add(self, request: Request, num_tokens: int) -> None:
        start = request.num_computed_tokens
        end = start + num_tokens
        tokens = request.token_ids
        drafts = request.drafts
        self.shares.append(
            ScheduledRequest(
                request.request_id,
                request.slot,  # type: ignore[arg-type]  # every running request has one
                tokens[start:end] + drafts if drafts else tokens[start:end],
                start,
                end == len(tokens),
                tokens,
                len(tokens) - len(request.prompt_token_ids),
                request.sampling,
                len(drafts),
            )
        )
        self.left -= num_tokens + len(drafts)
