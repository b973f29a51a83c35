"""What a step brought, folded from its events: outputs for the clients, counts for the metrics.

The engine tells everything as events anyway; this is one more fold over them, and it forgets a request when
its output is handed over, so that a server's memory does not grow with what it has served.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tutor.endpoint.messages import Admitted, Output, TokenLogprobs, TokenTold
from tutor.serving.request import Request
from tutor.trace import events as ev

Piece = Callable[[int], bytes]


@dataclass(slots=True)
class Live:
    """One sample that the engine runs: its request, whose it is, and how much of it was handed over."""

    request: Request
    owner: str
    index: int
    arrived_at: float
    told_logprobs: int = 0


@dataclass(slots=True)
class _Gathered:
    num_tokens: int = 0
    text: str = ""
    finish_reason: str = ""
    admitted: Admitted | None = None
    num_drafted: int = 0
    num_accepted: int = 0


class Harvest:
    """A sink for the engine's recorder. `records` are those of the step, for whoever keeps the trace."""

    def __init__(self, piece: Piece, keep_records: bool) -> None:
        self._piece = piece
        self._keep = keep_records
        self._started: float | None = None
        self._step: dict[str, _Gathered] = {}
        self.live: dict[str, Live] = {}
        self.records: list[ev.TraceRecord] = []
        self.num_preemptions = self.prefix_queries = self.prefix_hits = 0
        self.num_drafts = self.num_drafted = self.num_accepted = 0
        self.num_computed = 0  # tokens of the step that ran last

    def __call__(self, record: ev.TraceRecord) -> None:
        if self._started is None:
            self._started = time.perf_counter() - record.ts
        if self._keep:
            self.records.append(self._dated(record, self._started))
        self._take(record.event, self._started + record.ts)

    def _dated(self, record: ev.TraceRecord, started: float) -> ev.TraceRecord:
        """A request arrives while a step runs, and is told to the scheduler after it: the record gets the
        time when it was there, else TTFT would lack that part of the wait."""
        event = record.event
        if isinstance(event, ev.RequestArrived) and event.request_id in self.live:
            arrived = max(0.0, self.live[event.request_id].arrived_at - started)
            return ev.TraceRecord(record.seq, arrived, record.step, event)
        return record

    def _take(self, event: ev.AnyEvent, at: float) -> None:
        match event:
            case ev.TokensEmitted(request_id, token_ids, text):
                gathered = self._of(request_id)
                gathered.num_tokens += len(token_ids)
                gathered.text += text
            case ev.RequestScheduled(request_id, num_cached_tokens):
                self._of(request_id).admitted = Admitted(at, num_cached_tokens)
                live = self.live.get(request_id)
                self.prefix_queries += live.request.num_tokens if live else 0
                self.prefix_hits += num_cached_tokens
            case ev.RequestFinished(request_id, finish_reason):
                self._of(request_id).finish_reason = finish_reason
            case ev.RequestPreempted():
                self.num_preemptions += 1
            case ev.StepExecuted(_, num_tokens):
                self.num_computed = num_tokens
            case ev.TokensVerified(request_id, accepted, rejected):
                gathered = self._of(request_id)
                gathered.num_drafted += len(accepted) + len(rejected)
                gathered.num_accepted += len(accepted)
                self.num_drafts += 1
                self.num_drafted += len(accepted) + len(rejected)
                self.num_accepted += len(accepted)
            case _:
                pass

    def _of(self, request_id: str) -> _Gathered:
        return self._step.setdefault(request_id, _Gathered())

    def outputs(self) -> list[Output]:
        """Hand over what the step brought; finished requests are forgotten."""
        told = []
        for request_id, gathered in self._step.items():
            live = self.live.get(request_id)
            if live is None:
                continue
            told.append(
                Output(
                    live.owner, live.index, gathered.num_tokens, gathered.text, gathered.finish_reason,
                    gathered.admitted, self._logprobs(live), gathered.num_drafted, gathered.num_accepted,
                )
            )  # fmt: skip
            if gathered.finish_reason:
                del self.live[request_id]
        self._step.clear()
        return told

    def take_records(self) -> list[ev.TraceRecord]:
        records, self.records = self.records, []
        return records

    def _logprobs(self, live: Live) -> list[TokenLogprobs]:
        """Those of the tokens that are new, the one that ends a text (and has none) left out."""
        request = live.request
        if not request.sampling.logprobs:
            return []
        start, live.told_logprobs = live.told_logprobs, len(request.logprobs)
        first = request.num_prompt_tokens
        told = []
        for place in range(start, live.told_logprobs):
            token = request.token_ids[first + place]
            if token in request.stop_token_ids and not request.sampling.ignore_eos:
                continue
            entry = request.logprobs[place]
            top = [TokenTold(i, self._piece(i), logprob) for i, logprob in entry.top]
            told.append(TokenLogprobs(TokenTold(token, self._piece(token), entry.logprob), top))
        return told
