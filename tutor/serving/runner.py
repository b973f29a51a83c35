"""What the engine needs of a model: LlamaRunner runs one, CostModelRunner prices one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tutor.serving.outputs import KVOperation, ModelRunnerOutput, SchedulerOutput


class ModelRunner(Protocol):
    def now(self) -> float:
        """Seconds by the runner's clock (wall or virtual), monotonic."""
        ...

    def apply(self, operations: Sequence[KVOperation]) -> None:
        """Carry out KV operations in order."""
        ...

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Carry out the step's KV operations, run its tokens, sample where asked."""
        ...

    def piece(self, token_id: int) -> bytes:
        """The bytes of a token (may end mid-character)."""
        ...
