"""What can happen, as frozen records: the one vocabulary that engine, simulator, labs and screens share.

Events are in the past tense, hold plain values only (ints, floats, strings, tuples of them) and have
no behaviour. The fold over them lives in `tutor.trace.state`. Token counts are tokens, durations are
seconds, sizes are bytes.
"""

from __future__ import annotations

import msgspec

from tutor.trace.base import SCHEMA_VERSION as SCHEMA_VERSION
from tutor.trace.base import Event as Event
from tutor.trace.lab_events import AttentionRead as AttentionRead
from tutor.trace.lab_events import BufferMeasured as BufferMeasured
from tutor.trace.lab_events import CacheDropped as CacheDropped
from tutor.trace.lab_events import CacheFilled as CacheFilled
from tutor.trace.lab_events import DistributionShaped as DistributionShaped
from tutor.trace.lab_events import FrameWritten as FrameWritten
from tutor.trace.lab_events import LayerComputed as LayerComputed
from tutor.trace.lab_events import LogitsComputed as LogitsComputed
from tutor.trace.lab_events import Noted as Noted
from tutor.trace.lab_events import PassRun as PassRun
from tutor.trace.lab_events import PiecesMerged as PiecesMerged
from tutor.trace.lab_events import StageEntered as StageEntered
from tutor.trace.lab_events import StreamGrew as StreamGrew
from tutor.trace.lab_events import TablesCompared as TablesCompared
from tutor.trace.lab_events import TensorSeen as TensorSeen
from tutor.trace.lab_events import TextTokenized as TextTokenized
from tutor.trace.lab_events import TimingsRead as TimingsRead
from tutor.trace.lab_events import TokensComputed as TokensComputed
from tutor.trace.lab_events import TokensDrawn as TokensDrawn
from tutor.trace.lab_events import TokenTimed as TokenTimed

# --- requests ---------------------------------------------------------------------------------


class RequestArrived(Event, frozen=True):
    """A request came in. `label` is the one letter that the panels use for it."""

    request_id: str
    label: str
    num_prompt_tokens: int
    max_tokens: int
    prompt: str = ""


class RequestQueued(Event, frozen=True):
    request_id: str
    position: int
    reason: str


class RequestScheduled(Event, frozen=True):
    """Admitted from waiting to running."""

    request_id: str
    num_cached_tokens: int
    reason: str


class RequestPreempted(Event, frozen=True):
    """Lost its blocks; it goes back to the front of waiting. `way`: its KV is thrown away and computed again
    later (recompute), or saved in host memory and restored later (swap)."""

    request_id: str
    num_computed_tokens: int
    reason: str
    way: str = "recompute"


class TokensEmitted(Event, frozen=True):
    request_id: str
    token_ids: tuple[int, ...]
    text: str


class RequestFinished(Event, frozen=True):
    """`finish_reason`: stop, length, abort or error."""

    request_id: str
    finish_reason: str


# --- slots ------------------------------------------------------------------------------------


class SlotAssigned(Event, frozen=True):
    slot: int
    request_id: str


class SlotReleased(Event, frozen=True):
    slot: int
    request_id: str


# --- KV blocks --------------------------------------------------------------------------------


class PrefixMatched(Event, frozen=True):
    """`block_ids` were already computed for `source` and are now shared (ref_cnt + 1 each)."""

    request_id: str
    source: str
    num_cached_tokens: int
    block_ids: tuple[int, ...]


class BlocksAllocated(Event, frozen=True):
    request_id: str
    block_ids: tuple[int, ...]
    reason: str


class BlockStored(Event, frozen=True):
    """A block became full and can be shared from now on under its hash."""

    block_id: int
    block_hash: str
    parent_hash: str


class BlockEvicted(Event, frozen=True):
    """The block's hash was forgotten; its content can no longer be matched."""

    block_id: int
    block_hash: str
    reason: str


class BlocksFreed(Event, frozen=True):
    """The request gave these blocks back; `released` are those that nobody holds any more."""

    request_id: str
    block_ids: tuple[int, ...]
    released: tuple[int, ...]
    reason: str


class BlockCopied(Event, frozen=True):
    """Copy on write: a fork may not write into its parent's partly filled block, so it gets its own."""

    request_id: str
    from_block: int
    to_block: int
    num_tokens: int
    reason: str


class BlockMoved(Event, frozen=True):
    block_id: int
    from_tier: str
    to_tier: str
    num_bytes: int
    reason: str


class SequenceMoved(Event, frozen=True):
    """A saved sequence changed its tier; "" is outside, `num_bytes` are those stored (or freed)."""

    key: int
    from_tier: str
    to_tier: str
    num_tokens: int
    num_bytes: int
    encoding: str
    reason: str


class SequenceLoaded(Event, frozen=True):
    """A request starts from a saved sequence instead of computing its first tokens."""

    request_id: str
    num_tokens: int
    num_bytes: int
    reason: str


# --- speculation ------------------------------------------------------------------------------


class TokensDrafted(Event, frozen=True):
    request_id: str
    token_ids: tuple[int, ...]
    source: str


class TokensVerified(Event, frozen=True):
    request_id: str
    accepted: tuple[int, ...]
    rejected: tuple[int, ...]


# --- steps ------------------------------------------------------------------------------------


class ScheduledTokens(msgspec.Struct, frozen=True):
    """One request's share of a step; `num_tokens` positions from `start` on."""

    request_id: str
    slot: int
    start: int
    num_tokens: int
    phase: str  # "prefill" or "decode": a name for the reader; the scheduler only counts uncomputed tokens
    reason: str


class StepScheduled(Event, frozen=True):
    scheduled: tuple[ScheduledTokens, ...]
    num_running: int
    num_waiting: int
    token_budget: int
    reason: str = ""


class StepExecuted(Event, frozen=True):
    """`duration` in seconds: measured on a wall clock, modelled on a virtual one (see the header)."""

    duration: float
    num_tokens: int


# --- what llama.cpp says about itself -----------------------------------------------------------


class CellMapRead(Event, frozen=True):
    """llama.cpp's own view of its KV cells, read just before the step's tokens were placed.

    `cells` holds one entry a cell: "" empty, else "slot:position" ("M:position" if several
    sequences own it). `blocks` is what the ledger says of the same cell: block id, or -1.
    """

    cells: tuple[str, ...]
    blocks: tuple[int, ...]
    num_compared: int
    mismatches: tuple[str, ...]


AnyEvent = (
    RequestArrived
    | RequestQueued
    | RequestScheduled
    | RequestPreempted
    | TokensEmitted
    | RequestFinished
    | SlotAssigned
    | SlotReleased
    | PrefixMatched
    | BlocksAllocated
    | BlockStored
    | BlockEvicted
    | BlocksFreed
    | BlockCopied
    | BlockMoved
    | SequenceMoved
    | SequenceLoaded
    | TokensDrafted
    | TokensVerified
    | StepScheduled
    | StepExecuted
    | CellMapRead
    | StageEntered
    | TextTokenized
    | PiecesMerged
    | LogitsComputed
    | LayerComputed
    | TensorSeen
    | TokensComputed
    | TokenTimed
    | CacheDropped
    | CacheFilled
    | BufferMeasured
    | PassRun
    | FrameWritten
    | TimingsRead
    | AttentionRead
    | DistributionShaped
    | TokensDrawn
    | StreamGrew
    | TablesCompared
    | Noted
)


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a trace. `clock`: wall or virtual; `provenance`: measured, simulated or modelled."""

    schema: int = SCHEMA_VERSION
    lab: str
    clock: str
    provenance: str
    model: str
    model_digest: str = ""
    hardware: str = ""
    mode: str = ""
    exactness: str = ""
    block_size: int = 0
    num_blocks: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    seed: int = 0
    knobs: dict[str, str | int | float | bool] = {}


class TraceRecord(msgspec.Struct, frozen=True):
    """`seq` counts from 0 without gaps; `ts` is seconds since the header by the producer's own clock."""

    seq: int
    ts: float
    step: int
    event: AnyEvent
