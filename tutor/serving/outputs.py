"""What passes between scheduler and model runner."""

from __future__ import annotations

import msgspec

from tutor.serving.sampling import SamplingParams


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


class SeqKeep(msgspec.Struct, frozen=True):
    """Let other sequences own parts of `src` too; `parts` are (sequence, start), each `size` positions."""

    src: int
    parts: list[tuple[int, int]]
    size: int


class SeqClear(msgspec.Struct, frozen=True):
    """These sequences give up all their cells."""

    seqs: list[int]


class SeqSave(msgspec.Struct, frozen=True):
    """Copy all of sequence `seq` into host memory under `key`."""

    seq: int
    key: str


class SeqRestore(msgspec.Struct, frozen=True):
    """Put what was saved under `key` into the empty sequence `seq` and forget the copy."""

    key: str
    seq: int


class SeqDrop(msgspec.Struct, frozen=True):
    """Forget what was saved under `key`."""

    key: str


class SeqArchive(msgspec.Struct, frozen=True):
    """Hand a copy of sequence `seq`, which holds `token_ids`, to the tiers."""

    seq: int
    token_ids: list[int]
    salt: str
    lossy: bool


class SeqLoad(msgspec.Struct, frozen=True):
    """Put a saved state into the empty sequence `seq` and cut it to `num_tokens` positions."""

    seq: int
    blob: bytes
    num_tokens: int


KVOperation = SeqCopy | SeqRemove | SeqKeep | SeqClear | SeqSave | SeqRestore | SeqDrop | SeqArchive | SeqLoad


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural logarithm of a token's probability, and the likeliest tokens with theirs."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class ScheduledRequest(msgspec.Struct, frozen=True):
    """One request's share of a step: `token_ids` at positions start, start + 1, … in lane `slot`.

    `samples` is True when the last of them is the newest known token, so that a next one can be drawn. The
    last `num_drafts` of `token_ids` are guesses: the runner verifies them in the same pass. `history` is the
    request's own list of prompt and output tokens: read it, do not change it.
    """

    request_id: str
    slot: int
    token_ids: list[int]
    start: int
    samples: bool
    history: list[int]
    num_output_tokens: int
    sampling: SamplingParams
    num_drafts: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.history) - self.num_output_tokens


class SchedulerOutput(msgspec.Struct, frozen=True):
    """A step: KV operations first, in order, then one forward pass over all scheduled tokens."""

    scheduled: list[ScheduledRequest]
    operations: list[KVOperation]

    @property
    def num_tokens(self) -> int:
        return sum(len(share.token_ids) for share in self.scheduled)


class ModelRunnerOutput(msgspec.Struct, frozen=True):
    """`sampled`: new tokens by request id: accepted drafts, then the one drawn after them.

    `duration`: seconds of the step by the runner's clock. `logprobs`: for requests that ask for them, one
    entry a new token.
    """

    sampled: dict[str, list[int]]
    duration: float
    logprobs: dict[str, list[TokenLogprob]] = {}
