"""Speculation inside the engine: who drafts, how many tokens, and what became of them."""

from __future__ import annotations

from tutor.serving.draft_length import DraftLength
from tutor.serving.request import Request
from tutor.serving.speculative import Drafter, SpeculationStats


class Speculator:
    """A drafter with a rule for how long its drafts are. `stats` counts over all requests."""

    def __init__(self, drafter: Drafter, length: DraftLength) -> None:
        self.drafter = drafter
        self.length = length
        self.stats = SpeculationStats()

    def draft(self, request: Request, batch: int, limit: int) -> list[int]:
        """At most `limit` guesses for the tokens after the newest one; `batch` requests decode beside it."""
        if limit <= 0:
            return []
        count = self.length.choose(request.request_id, batch, limit)
        return self.drafter.propose(request, count) if count > 0 else []

    def observe(self, request: Request, drafted: int, accepted: int) -> None:
        """A pass over a decoding request: `accepted` of its drafts were right."""
        self.stats.record(drafted, accepted)
        self.length.observe(request.request_id, drafted, accepted)

    def forget(self, request: Request) -> None:
        """The request is over."""
        self.drafter.forget(request.request_id)
        self.length.forget(request.request_id)

    def check_integrity(self) -> None:
        self.stats.check_integrity()
        self.length.check_integrity()
