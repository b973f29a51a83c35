"""What passes between scheduler and model runner."""

from __future__ import annotations

import msgspec

from tutor.serving.request import SamplingParams


class SeqCopy(msgspec.Struct, frozen=True):
    """Let sequence `dst` own the cells of `src` at positions start..end-1 as well (no data is copied)."""

    src: int
    dst: int
    start: int
    end: int


class SeqRemove(msgspec.Struct, frozen=True):
    """Sequence `seq` gives up its cells from position `start` on."""

    seq: int
    start: int = 0


KVOperation = SeqCopy | SeqRemove


class ScheduledRequest(msgspec.Struct, frozen=True):
    """One request's share of a step: `token_ids` at positions start, start + 1, … in lane `slot`.

    `samples` is True when the last of them is the newest token, so that a next token can be drawn.
    """

    request_id: str
    slot: int
    token_ids: list[int]
    start: int
    samples: bool
    num_output_tokens: int
    sampling: SamplingParams


class SchedulerOutput(msgspec.Struct, frozen=True):
    """A step: KV operations first, in order, then one forward pass over all scheduled tokens."""

    scheduled: list[ScheduledRequest]
    operations: list[KVOperation]

    @property
    def num_tokens(self) -> int:
        return sum(len(share.token_ids) for share in self.scheduled)


class ModelRunnerOutput(msgspec.Struct, frozen=True):
    """`sampled`: next token by request id. `duration`: seconds of the step by the runner's clock."""

    sampled: dict[str, int]
    duration: float
