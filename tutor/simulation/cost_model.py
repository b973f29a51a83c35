"""CostModelRunner: what a step would take on other hardware, by the roofline model.

A step takes as long as the slower of its two needs: arithmetic, or moving weights and KV through memory
[Williams, Waterman, Patterson: Roofline, 2009]. Launch overhead and the sampler are not modelled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tutor.serving.outputs import (
    KVOperation,
    ModelRunnerOutput,
    ScheduledRequest,
    SchedulerOutput,
    SeqRestore,
    SeqSave,
)


@dataclass(frozen=True, slots=True)
class Hardware:
    """Peak figures of one device. `efficiency` is the share of `flops` that big matrix products reach."""

    name: str
    flops: float  # floating-point operations a second
    bytes_per_second: float
    efficiency: float = 1.0
    host_bytes_per_second: float = 25e9  # to host memory and back, for swapping


@dataclass(frozen=True, slots=True)
class ModelCost:
    """What one model needs. `width` is query heads x head dim: a pair of tokens costs 4 x width FLOP."""

    name: str
    weight_bytes: float
    flops_per_token: float
    kv_bytes_per_token: float
    num_layers: int
    width: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of arithmetic and of memory traffic; the step takes the longer of the two."""

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        return max(self.compute, self.memory)

    @property
    def bound(self) -> str:
        return "compute" if self.compute > self.memory else "memory"


def step_cost(model: ModelCost, hardware: Hardware, shares: Sequence[tuple[int, int]]) -> StepCost:
    """Cost of one pass over shares of (first position, number of tokens).

    Weights are read once for the whole step, each request's KV once; token p attends to p + 1 positions.
    """
    tokens = sum(count for _, count in shares)
    pairs = sum(count * start + count * (count + 1) // 2 for start, count in shares)
    attention = 4.0 * model.width * model.num_layers * pairs
    flops = tokens * model.flops_per_token + attention
    cells = sum(start + count for start, count in shares)
    traffic = model.weight_bytes + cells * model.kv_bytes_per_token
    return StepCost(flops / (hardware.flops * hardware.efficiency), traffic / hardware.bytes_per_second)


Continue = Callable[[str, int], int]


def arbitrary_tokens(vocabulary: int) -> Continue:
    """Next tokens that depend on request id and index alone: a stand-in for text that nobody reads."""

    def token(request_id: str, index: int) -> int:
        digest = hashlib.blake2b(f"{request_id}:{index}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % vocabulary

    return token


class CostModelRunner:
    """A ModelRunner on a virtual clock: `now()` moves by the modelled duration of each step.

    `next_token(request_id, index)` gives the output token number `index` of a request.
    """

    def __init__(self, model: ModelCost, hardware: Hardware, next_token: Continue) -> None:
        self.model = model
        self.hardware = hardware
        self._next_token = next_token
        self._clock = 0.0
        self._held: dict[int, int] = {}  # tokens in each lane, for the price of swapping
        self._saved: dict[str, int] = {}

    def now(self) -> float:
        return self._clock

    def advance_to(self, time: float) -> None:
        """Let the clock stand at `time` when nothing runs until then (the next arrival)."""
        self._clock = max(self._clock, time)

    def piece(self, token_id: int) -> bytes:
        return b""

    def apply(self, operations: Sequence[KVOperation]) -> None:
        """Metadata costs nothing; swapping moves the lane's KV over the host link."""
        for operation in operations:
            if isinstance(operation, SeqSave):
                self._saved[operation.key] = self._held.get(operation.seq, 0)
                self._transfer(self._saved[operation.key])
            elif isinstance(operation, SeqRestore):
                self._transfer(self._saved.pop(operation.key))

    def _transfer(self, tokens: int) -> None:
        self._clock += tokens * self.model.kv_bytes_per_token / self.hardware.host_bytes_per_second

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        before = self._clock
        self.apply(output.operations)
        shares = [(share.start, len(share.token_ids)) for share in output.scheduled]
        self._clock += step_cost(self.model, self.hardware, shares).seconds
        for share in output.scheduled:
            self._held[share.slot] = share.start + len(share.token_ids)
        sampled = {s.request_id: self._verify(s) for s in output.scheduled if s.samples}
        return ModelRunnerOutput(sampled, self._clock - before)

    def _verify(self, share: ScheduledRequest) -> list[int]:
        """Accepted drafts and the token after them."""
        drafts = share.token_ids[len(share.token_ids) - share.num_drafts :]
        new: list[int] = []
        for draft in [*drafts, None]:
            new.append(self._next_token(share.request_id, share.num_output_tokens + len(new)))
            if new[-1] != draft:
                break
        return new
