"""What a context is made of: sizes, cache types, mode, and what llama.cpp reads from the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from tutor.llama.errors import EngineMisuse

Mode = Literal["exact", "shared"]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"]

# ggml_type numbers, https://github.com/ggml-org/ggml/blob/master/include/ggml.h
KV_TYPES: dict[KvType, int] = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30
}  # fmt: skip
CELL_LOG = "LLAMA_KV_CACHE_DEBUG"
CELL_LOG_LEVEL = "3"
NO_ROTATION = "LLAMA_ATTN_ROT_DISABLE"


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """What a context is made of.

    mode: "exact" gives every slot its own part of the cache: with bf16 K and V and flash attention (the
    defaults), logits are bit-identical for any batch mix, chunking and thread count. "shared" makes one pool
    of cells that slots can share.
    n_ctx: KV cells of all slots together, in tokens; llama.cpp rounds up to a multiple of 256 (a slot's part,
    in exact mode). n_batch: tokens a decode call may hold; n_ubatch: tokens llama.cpp computes at once.
    n_threads: one by default, because llama.cpp's threads spin: beside a busy neighbour two are many times
    slower than one. log_cells: let llama.cpp log its map of cells at every decode. rotation: llama.cpp
    multiplies Q, K and V by a Hadamard matrix before it quantises K and V, which spreads outliers over a
    head's elements; it matters for quantised types alone.
    """

    mode: Mode = "exact"
    n_ctx: int = 1024
    n_seq_max: int = 1
    n_batch: int = 512
    n_ubatch: int = 512
    n_threads: int = 1
    type_k: KvType = "bf16"
    type_v: KvType = "bf16"
    flash_attn: bool = True
    log_cells: bool = False
    rotation: bool = True

    @property
    def is_exact(self) -> bool:
        """Are logits bit-identical however the work is batched? (Known for bf16 and q8_0.)"""
        return (
            self.mode == "exact"
            and self.flash_attn
            and self.type_k == self.type_v
            and self.type_k in ("bf16", "q8_0")
        )

    def check(self) -> None:
        """Raises EngineMisuse for values that llama.cpp would refuse or stumble over."""
        for name in ("n_ctx", "n_seq_max", "n_batch", "n_ubatch", "n_threads"):
            if getattr(self, name) < 1:
                raise EngineMisuse(f"{name} is {getattr(self, name)}.", "It has to be 1 or more.")
        if self.mode not in get_args(Mode):
            raise EngineMisuse(f"There is no mode {self.mode!r}.", "Modes are exact and shared.")
        for kind in (self.type_k, self.type_v):
            if kind not in KV_TYPES:
                raise EngineMisuse(f"K and V cannot be {kind!r}.", f"Types: {', '.join(KV_TYPES)}.")
        if self.type_v.startswith("q") and not self.flash_attn:
            raise EngineMisuse("A quantised V needs flash attention.", "Set flash_attn to True.")

    @contextmanager
    def environment(self) -> Iterator[None]:
        """llama.cpp reads some settings with getenv while it makes a context: set them just for that."""
        wanted = {CELL_LOG: CELL_LOG_LEVEL} if self.log_cells else {}
        if not self.rotation:
            wanted[NO_ROTATION] = "1"
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
