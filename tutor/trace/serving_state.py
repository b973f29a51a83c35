"""The fold of serving events: who runs where, who holds which block, and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import singledispatchmethod

from tutor.trace import events as ev
from tutor.trace.mechanisms import MechanismsState
from tutor.trace.views import BlockView, CellMapView, RequestView, ServingView, SlotView, StepView

TIMELINE_STEPS = 96
DECISIONS = 12


class _Request:
    """Mutable working copy of one request; `RequestView` is its frozen picture."""

    def __init__(self, arrived: ev.RequestArrived, ts: float) -> None:
        self.arrived = arrived
        self.arrived_at = ts
        self.status = "waiting"
        self.slot: int | None = None
        self.num_computed = 0
        self.num_cached = 0
        self.num_output = 0
        self.text = ""
        self.block_ids: list[int] = []
        self.finish_reason = ""
        self.num_preemptions = 0
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        self.reason = ""
        self.swapped = False  # its KV lies in host memory

    def view(self) -> RequestView:
        a = self.arrived
        return RequestView(
            a.request_id, a.label, a.prompt, self.status, self.slot, a.num_prompt_tokens, a.max_tokens,
            self.num_computed, self.num_cached, self.num_output, self.text, tuple(self.block_ids),
            self.finish_reason, self.num_preemptions, self.arrived_at, self.first_token_at,
            self.finished_at, self.reason,
        )  # fmt: skip


class ServingState:
    """Apply records in order; `view()` gives the frozen picture. Unknown events are ignored."""

    def __init__(self, header: ev.TraceHeader) -> None:
        self._block_size = header.block_size
        self._requests: dict[str, _Request] = {}
        self._slots: list[str | None] = [None] * header.max_num_seqs
        self._timelines: list[deque[tuple[str, str]]] = [
            deque(maxlen=TIMELINE_STEPS) for _ in range(header.max_num_seqs)
        ]
        self._owners: list[list[str]] = [[] for _ in range(header.num_blocks)]
        self._hashes: list[str] = [""] * header.num_blocks
        self._cells: ev.CellMapRead | None = None
        self._num_compared = 0
        self._mismatches: list[str] = []
        self._last: StepView | None = None
        self._prefix_hits = 0
        self._prefix_queries = 0
        self._decisions: deque[str] = deque(maxlen=DECISIONS)
        self._mechanisms = MechanismsState()
        self._ts = 0.0

    def apply(self, record: ev.TraceRecord) -> None:
        self._ts = record.ts
        self._on(record.event)
        self._mechanisms.apply(record.event)

    def _label(self, request_id: str) -> str:
        request = self._requests.get(request_id)
        return request.arrived.label if request else "?"

    def _decide(self, request_id: str, text: str) -> None:
        self._requests[request_id].reason = text
        self._decisions.append(f"{self._label(request_id)} {text}")

    @singledispatchmethod
    def _on(self, event: object) -> None:
        """Events of other labs do not change the serving picture."""

    @_on.register
    def _(self, event: ev.RequestArrived) -> None:
        self._requests[event.request_id] = _Request(event, self._ts)

    @_on.register
    def _(self, event: ev.RequestQueued) -> None:
        self._decide(event.request_id, f"waits: {event.reason}")

    @_on.register
    def _(self, event: ev.RequestScheduled) -> None:
        request = self._requests[event.request_id]
        request.status = "running"
        request.num_computed = request.num_cached = event.num_cached_tokens
        if request.swapped:  # restored from host memory: nobody looked into the prefix cache
            request.swapped, request.num_cached = False, 0
        else:
            self._prefix_hits += event.num_cached_tokens
            self._prefix_queries += request.arrived.num_prompt_tokens + request.num_output
        self._decide(event.request_id, f"admitted: {event.reason}")

    @_on.register
    def _(self, event: ev.RequestPreempted) -> None:
        request = self._requests[event.request_id]
        request.status = "preempted"
        request.num_computed = 0
        request.num_preemptions += 1
        request.swapped = event.way == "swap"
        self._decide(event.request_id, f"preempted: {event.reason}")

    @_on.register
    def _(self, event: ev.TokensEmitted) -> None:
        request = self._requests[event.request_id]
        request.num_output += len(event.token_ids)
        request.text += event.text
        if request.first_token_at is None:
            request.first_token_at = self._ts

    @_on.register
    def _(self, event: ev.RequestFinished) -> None:
        request = self._requests[event.request_id]
        request.status = "finished"
        request.finish_reason = event.finish_reason
        request.finished_at = self._ts
        self._decide(event.request_id, f"finished: {event.finish_reason}")

    @_on.register
    def _(self, event: ev.SlotAssigned) -> None:
        self._slots[event.slot] = event.request_id
        self._requests[event.request_id].slot = event.slot

    @_on.register
    def _(self, event: ev.SlotReleased) -> None:
        self._slots[event.slot] = None
        self._requests[event.request_id].slot = None

    @_on.register
    def _(self, event: ev.PrefixMatched) -> None:
        self._hold(event.request_id, event.block_ids)
        self._decide(
            event.request_id,
            f"shares {len(event.block_ids)} blocks ({event.num_cached_tokens} tokens) of {event.source}",
        )

    @_on.register
    def _(self, event: ev.BlocksAllocated) -> None:
        self._hold(event.request_id, event.block_ids)

    @_on.register
    def _(self, event: ev.BlocksFreed) -> None:
        request = self._requests[event.request_id]
        for block_id in event.block_ids:
            self._owners[block_id].remove(event.request_id)
            request.block_ids.remove(block_id)

    @_on.register
    def _(self, event: ev.SequenceLoaded) -> None:
        self._requests[event.request_id].num_computed = event.num_tokens
        self._decide(event.request_id, f"is loaded: {event.reason}")

    @_on.register
    def _(self, event: ev.BlockCopied) -> None:
        self._decide(
            event.request_id,
            f"copies {event.num_tokens} tokens of block {event.from_block} to {event.to_block}: "
            f"{event.reason}",
        )

    @_on.register
    def _(self, event: ev.BlockStored) -> None:
        self._hashes[event.block_id] = event.block_hash

    @_on.register
    def _(self, event: ev.BlockEvicted) -> None:
        self._hashes[event.block_id] = ""

    @_on.register
    def _(self, event: ev.StepScheduled) -> None:
        phases = {share.slot: share for share in event.scheduled}
        for slot, timeline in enumerate(self._timelines):
            holder = self._slots[slot]
            if slot in phases:
                timeline.append((self._label(phases[slot].request_id), phases[slot].phase))
            else:
                timeline.append((self._label(holder), "held") if holder else ("", "idle"))
        for share in event.scheduled:
            self._requests[share.request_id].num_computed = share.start + share.num_tokens
            self._requests[share.request_id].reason = share.reason
        self._last = StepView(
            event.scheduled, event.num_running, event.num_waiting, event.token_budget,
            sum(share.num_tokens for share in event.scheduled), 0.0, event.reason,
        )  # fmt: skip

    @_on.register
    def _(self, event: ev.StepExecuted) -> None:
        if self._last is not None:
            last = self._last
            self._last = StepView(
                last.scheduled, last.num_running, last.num_waiting, last.token_budget,
                event.num_tokens, event.duration, last.reason,
            )  # fmt: skip
        self._mechanisms.note_use(*self._positions())

    @_on.register
    def _(self, event: ev.CellMapRead) -> None:
        self._cells = event
        self._num_compared += event.num_compared
        self._mismatches.extend(event.mismatches)

    def _hold(self, request_id: str, block_ids: tuple[int, ...]) -> None:
        self._requests[request_id].block_ids.extend(block_ids)
        for block_id in block_ids:
            self._owners[block_id].append(request_id)

    def _positions(self) -> tuple[int, int]:
        """Positions that hold a token, and those that requests hold; a shared block counts once."""
        size, filled = self._block_size, dict[int, int]()
        for request in self._requests.values():
            for place, block_id in enumerate(request.block_ids):
                tokens = max(0, min(size, request.num_computed - place * size))
                filled[block_id] = max(filled.get(block_id, 0), tokens)
        return sum(filled.values()), size * len(filled)

    def _block_view(self, block_id: int) -> BlockView:
        owners = self._owners[block_id]
        # A cached block that nobody holds is full: only full blocks are stored.
        filled = self._block_size if self._hashes[block_id] and not owners else 0
        for owner in owners:
            request = self._requests[owner]
            start = request.block_ids.index(block_id) * self._block_size
            filled = max(filled, min(self._block_size, request.num_computed - start))
        labels = tuple(self._label(owner) for owner in owners)
        return BlockView(block_id, len(owners), labels, max(filled, 0), self._hashes[block_id])

    def _slot_view(self, slot: int) -> SlotView:
        holder = self._slots[slot]
        timeline = tuple(self._timelines[slot])
        phase = timeline[-1][1] if timeline and holder else "idle"
        return SlotView(slot, holder, self._label(holder) if holder else "", phase, timeline)

    def view(self) -> ServingView:
        requests = tuple(request.view() for request in self._requests.values())
        by: Callable[[str], tuple[str, ...]] = lambda status: tuple(  # noqa: E731
            r.request_id for r in requests if r.status == status
        )
        cells = None
        if self._cells is not None:
            cells = CellMapView(
                self._cells.cells, self._cells.blocks, self._num_compared, len(self._mismatches),
                tuple(self._mismatches[-3:]),
            )  # fmt: skip
        return ServingView(
            requests=requests,
            waiting=by("waiting"),
            preempted=by("preempted"),
            slots=tuple(self._slot_view(slot) for slot in range(len(self._slots))),
            blocks=tuple(self._block_view(block_id) for block_id in range(len(self._owners))),
            block_size=self._block_size,
            cells=cells,
            last=self._last,
            prefix_hits=self._prefix_hits,
            prefix_queries=self._prefix_queries,
            num_preemptions=sum(r.num_preemptions for r in requests),
            num_output_tokens=sum(r.num_output_tokens for r in requests),
            decisions=tuple(self._decisions),
            mechanisms=self._mechanisms.view(),
        )
