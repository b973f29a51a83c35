"""Frozen pictures of a run at one step: all that a widget may see."""

from __future__ import annotations

import msgspec

from tutor.trace.events import (
    AttentionRead,
    CacheFilled,
    DistributionShaped,
    FrameWritten,
    LayerComputed,
    LogitsComputed,
    PassRun,
    ScheduledTokens,
    StreamGrew,
    TablesCompared,
    TimingsRead,
    TokensDrawn,
    TokenTimed,
    TraceHeader,
)
from tutor.trace.mechanisms import MechanismsView as MechanismsView


class RequestView(msgspec.Struct, frozen=True):
    """One request. `status`: waiting, running, preempted, finished. Counts are tokens."""

    request_id: str
    label: str
    prompt: str
    status: str
    slot: int | None
    num_prompt_tokens: int
    max_tokens: int
    num_computed_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    text: str
    block_ids: tuple[int, ...]
    finish_reason: str
    num_preemptions: int
    arrived_at: float
    first_token_at: float | None
    finished_at: float | None
    reason: str


class SlotView(msgspec.Struct, frozen=True):
    """One lane. `timeline` has one (label, phase) a step, newest last; phase: prefill, decode, held, idle."""

    slot: int
    request_id: str | None
    label: str
    phase: str
    timeline: tuple[tuple[str, str], ...]


class BlockView(msgspec.Struct, frozen=True):
    """One KV block: `owners` are the labels of the requests that hold it (ref_cnt = their number)."""

    block_id: int
    ref_cnt: int
    owners: tuple[str, ...]
    num_tokens: int
    block_hash: str


class CellMapView(msgspec.Struct, frozen=True):
    """llama.cpp's own cells at the last reading, with the ledger's block for each."""

    cells: tuple[str, ...]
    blocks: tuple[int, ...]
    num_compared: int
    num_mismatches: int
    mismatches: tuple[str, ...]


class StepView(msgspec.Struct, frozen=True):
    scheduled: tuple[ScheduledTokens, ...]
    num_running: int
    num_waiting: int
    token_budget: int
    num_tokens: int
    duration: float
    reason: str


class ServingView(msgspec.Struct, frozen=True):
    """The serving engine at one step. `prefix_hits`/`prefix_queries` are cached and queried prompt tokens."""

    requests: tuple[RequestView, ...]
    waiting: tuple[str, ...]
    preempted: tuple[str, ...]
    slots: tuple[SlotView, ...]
    blocks: tuple[BlockView, ...]
    block_size: int
    cells: CellMapView | None
    last: StepView | None
    prefix_hits: int
    prefix_queries: int
    num_preemptions: int
    num_output_tokens: int
    decisions: tuple[str, ...]
    mechanisms: MechanismsView

    @property
    def num_used_blocks(self) -> int:
        return sum(block.ref_cnt > 0 for block in self.blocks)

    def request(self, request_id: str) -> RequestView | None:
        return next((r for r in self.requests if r.request_id == request_id), None)


class TokensView(msgspec.Struct, frozen=True):
    """A text and its tokens (pieces as bytes), with the merges done so far of the word being replayed."""

    text: str
    token_ids: tuple[int, ...]
    pieces: tuple[bytes, ...]


class MergeView(msgspec.Struct, frozen=True):
    pieces: tuple[bytes, ...]
    pair: tuple[bytes, bytes]
    rank: int


class LaneView(msgspec.Struct, frozen=True):
    """One way of computing the same text: tokens run and seconds taken by each pass, cached tokens."""

    lane: str
    passes: tuple[int, ...]
    durations: tuple[float, ...]
    total_tokens: int
    cache_tokens: int
    text: str
    dropped: tuple[tuple[int, int], ...] = ()  # (position, number of entries) of each removal


class BufferView(msgspec.Struct, frozen=True):
    label: str
    n_ctx: int
    n_seq: int
    type_k: str
    type_v: str
    num_cells: int
    measured_bytes: int
    formula_bytes: int


class StageView(msgspec.Struct, frozen=True):
    """One run of a stage; `duration` in seconds, None where it was not measured."""

    stage: str
    detail: str
    step: int
    duration: float | None = None


class TensorView(msgspec.Struct, frozen=True):
    name: str
    role: str
    shape: tuple[int, ...]


class LabView(msgspec.Struct, frozen=True):
    """Everything a lab screen can show at one step of a trace."""

    header: TraceHeader
    step: int
    ts: float
    serving: ServingView
    stages: tuple[StageView, ...]
    tokens: tuple[TokensView, ...]
    merges: tuple[MergeView, ...]
    logits: tuple[LogitsComputed, ...]
    layers: tuple[LayerComputed, ...]
    tensors: tuple[TensorView, ...]
    lanes: tuple[LaneView, ...]
    buffers: tuple[BufferView, ...]
    note: str
    passes: tuple[PassRun, ...] = ()
    frames: tuple[FrameWritten, ...] = ()
    timings: tuple[TimingsRead, ...] = ()
    attention: tuple[AttentionRead, ...] = ()
    shapes: tuple[DistributionShaped, ...] = ()
    draws: TokensDrawn | None = None
    streams: tuple[StreamGrew, ...] = ()
    compared: TablesCompared | None = None
    timed: tuple[TokenTimed, ...] = ()
    fillings: tuple[CacheFilled, ...] = ()  # the newest of each type
