"""A trace in memory that forgets its beginning: a server runs for days, and its screen shows the present.

A trace is folded from its first record, so it cannot just be cut: the state at the cut is written down as
events that lead to it, and the trace goes on from there. Totals (prefix hits, preemptions) start again.
"""

from __future__ import annotations

from collections.abc import Iterator

from tutor.trace import events as ev
from tutor.trace.playback import Playback
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView, RequestView

MOST_RECORDS = 30_000
UNKNOWN = -1  # the id of a token whose text is kept and whose number is not


def state_as_events(view: LabView) -> Iterator[tuple[float, ev.AnyEvent]]:
    """(time, event) pairs after which a fold shows the requests and blocks of `view` that still matter."""
    serving = view.serving
    for block in serving.blocks:
        if block.block_hash:
            yield view.ts, ev.BlockStored(block.block_id, block.block_hash, "")
    for request in serving.requests:
        if request.status != "finished" or _holds_something(request):
            yield from _request_as_events(request, view.ts)


def _holds_something(r: RequestView) -> bool:
    """A cut may fall between the end of a request and the release of its blocks and its slot."""
    return bool(r.block_ids) or r.slot is not None


def _request_as_events(r: RequestView, now: float) -> Iterator[tuple[float, ev.AnyEvent]]:
    arrived = ev.RequestArrived(r.request_id, r.label, r.num_prompt_tokens, r.max_tokens, r.prompt)
    yield r.arrived_at, arrived
    if r.num_output_tokens:
        tokens = (UNKNOWN,) * r.num_output_tokens
        yield r.first_token_at or now, ev.TokensEmitted(r.request_id, tokens, r.text)
    if r.status == "waiting":
        yield now, ev.RequestQueued(r.request_id, 0, r.reason)
    else:
        yield now, ev.RequestScheduled(r.request_id, r.num_cached_tokens, r.reason)
    if r.slot is not None:
        yield now, ev.SlotAssigned(r.slot, r.request_id)
    if r.block_ids:
        yield now, ev.BlocksAllocated(r.request_id, r.block_ids, r.reason)
    if r.status == "preempted":
        yield now, ev.RequestPreempted(r.request_id, r.num_computed_tokens, r.reason)
    elif r.status == "finished":
        yield r.finished_at or now, ev.RequestFinished(r.request_id, r.finish_reason)


class RollingTrace:
    """A store and the cursor over it. Both are new ones when the beginning was forgotten."""

    def __init__(self, header: ev.TraceHeader, most: int = MOST_RECORDS) -> None:
        self._most = most
        self.store = TraceStore(header)
        self.playback = Playback(self.store)

    def append(self, records: list[ev.TraceRecord]) -> None:
        """Add records in order. While somebody looks at the past, it is kept for a while longer."""
        for record in records:
            self._add(record.ts, record.step, record.event)
        full = len(self.store) > self._most
        if full and (self.playback.following or len(self.store) > 4 * self._most):
            self._forget()

    def _add(self, ts: float, step: int, event: ev.AnyEvent) -> None:
        self.store.append(ev.TraceRecord(len(self.store), ts, step, event))

    def _forget(self) -> None:
        self.playback.follow()
        view, step = self.playback.view, self.store.last_step
        speed = self.playback.speed
        self.store = TraceStore(self.store.header)
        for ts, event in state_as_events(view):
            self._add(ts, step, event)
        self.playback = Playback(self.store)
        self.playback.speed = speed
