"""The engine's settings, under the names that vLLM users know."""

from __future__ import annotations

from dataclasses import dataclass

from tutor.serving.errors import ConfigError

CHOICES = {
    "batching": ("continuous", "static"),
    "order": ("decode_first", "prefill_first"),
    "admission": ("fcfs", "priority", "shortest", "longest_prefix"),
    "preemption": ("recompute", "swap"),
    "allocator": ("paged", "contiguous"),
}


@dataclass(frozen=True)
class EngineConfig:
    """Sizes are tokens, `num_blocks` and `watermark_blocks` are blocks.

    max_num_batched_tokens: the step's token budget.
    order: who gets budget first among running requests.
    admission: who is next among waiting ones; nobody is passed over more than `max_passed_over` times.
    preemption: forget a victim's KV and recompute it, or save it in host memory and restore it.
    allocator: blocks as they are needed, or one unbroken run for the longest possible answer up front.
    watermark_blocks: free blocks that admission leaves for the requests that already run.
    shared_cells: whether sequences can own cells together (llama.cpp's unified cache). Without it nothing is
    shared: prefix caching is off and forks compute their prompts themselves.
    max_parked: how many cached blocks may outlive their last request; in llama.cpp each of them needs a
    sequence id that keeps its cells (see `Parking`).
    """

    max_num_seqs: int = 4
    max_num_batched_tokens: int = 64
    block_size: int = 16
    num_blocks: int = 64
    batching: str = "continuous"
    order: str = "decode_first"
    admission: str = "fcfs"
    max_passed_over: int = 8
    preemption: str = "recompute"
    allocator: str = "paged"
    chunked_prefill: bool = True
    prefix_caching: bool = True
    watermark_blocks: int = 0
    shared_cells: bool = True
    max_parked: int = 64

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("watermark_blocks", "max_parked", "max_passed_over"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be at least 0, not {getattr(self, name)}.")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is one of {', '.join(allowed)}, not {getattr(self, name)!r}.")
        self._check_together()

    def _check_together(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}): each running request decodes one token a step."
            )
        if self.allocator == "contiguous" and (self.prefix_caching or self.shared_cells):
            raise ConfigError(
                "The contiguous allocator shares nothing; set prefix_caching and shared_cells to False."
            )
        if self.prefix_caching and not self.shared_cells:
            raise ConfigError("Prefix caching needs cells that sequences can share; set it to False.")
        if self.watermark_blocks >= self.num_blocks:
            raise ConfigError(f"watermark_blocks ({self.watermark_blocks}) leaves no block to admit anyone.")

    @property
    def num_sequences(self) -> int:
        """Sequence ids that the runner must provide: one a slot, one a parked block."""
        return self.max_num_seqs + (self.max_parked if self.prefix_caching else 0)
