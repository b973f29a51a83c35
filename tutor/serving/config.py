"""The engine's settings, under the names that vLLM users know."""

from __future__ import annotations

from dataclasses import dataclass

from tutor.serving.errors import ConfigError

MAX_SEQUENCES = 256  # llama.cpp's LLAMA_MAX_SEQ: slots and parked blocks together


@dataclass(frozen=True)
class EngineConfig:
    """`block_size` in tokens, `max_num_batched_tokens` is the step's token budget.

    `max_parked` is how many cached blocks may outlive their last request: in llama.cpp each of them
    needs a sequence id that keeps its cells (see `KVCacheManager`).
    """

    max_num_seqs: int = 4
    max_num_batched_tokens: int = 64
    block_size: int = 16
    num_blocks: int = 64
    batching: str = "continuous"
    chunked_prefill: bool = True
    prefix_caching: bool = True
    max_parked: int = 64

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.batching not in ("continuous", "static"):
            raise ConfigError(f"batching is continuous or static, not {self.batching!r}.")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}): each running request decodes one token a step."
            )
        if self.num_sequences > MAX_SEQUENCES:
            raise ConfigError(
                f"max_num_seqs + max_parked is {self.num_sequences}; llama.cpp has {MAX_SEQUENCES} sequences."
            )

    @property
    def num_sequences(self) -> int:
        """Sequence ids that the runner must provide: one a slot, one a parked block."""
        return self.max_num_seqs + (self.max_parked if self.prefix_caching else 0)
