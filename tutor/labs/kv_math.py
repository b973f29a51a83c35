"""The lab of *KV cache size math*: real contexts, llama.cpp's own figure beside the formula's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tutor.curriculum.formulas import padded_context, type_bytes
from tutor.labs.plain import buffers_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.llama.context import KvType
from tutor.trace import events as ev

TYPES = ("f16", "bf16", "q8_0", "q4_0", "q4_1", "f32")


class KVMathProducer(StepProducer):
    """First the context that the knobs describe, then the same with other types and one token more."""

    lab = "kv-math"
    mode = "shared"

    def steps(self) -> Iterator[None]:
        n_ctx, n_seq = int(self.knobs["n_ctx"]), int(self.knobs["n_seq"])
        type_k, type_v = str(self.knobs["type_k"]), str(self.knobs["type_v"])
        unified = bool(self.knobs["unified"])
        self._measure("your settings", n_ctx, n_seq, type_k, type_v, unified)
        yield
        self.record(ev.Noted("The same context with other types of K and V."))
        for kv_type in ("f16", "q8_0", "q4_0"):
            self._measure(f"K and V {kv_type}", n_ctx, n_seq, kv_type, kv_type, unified)
            yield
        self.record(ev.Noted("n_ctx is rounded up to a multiple of 256."))
        edge = padded_context(n_ctx)
        self._measure("up to the edge", edge, n_seq, type_k, type_v, unified)
        yield
        self._measure("one token more", edge + 1, n_seq, type_k, type_v, unified)
        yield
        self.record(ev.Noted("Three sequences with a cache of their own: each is rounded up."))
        self._measure("3 separate caches", n_ctx, 3, type_k, type_v, False)

    def _measure(self, label: str, n_ctx: int, n_seq: int, type_k: str, type_v: str, unified: bool) -> None:
        cells, measured = self.model.kv_buffer_bytes(
            n_ctx, n_seq, cast(KvType, type_k), cast(KvType, type_v), unified
        )
        dims = self.model.dims
        per_side = dims.n_layer * dims.n_head_kv * dims.head_dim
        expected = padded_context(n_ctx) if unified else n_seq * padded_context(-(-n_ctx // n_seq))
        formula = expected * (type_bytes(type_k, per_side) + type_bytes(type_v, per_side))
        self.record(ev.BufferMeasured(label, n_ctx, n_seq, type_k, type_v, cells, measured, formula))


KIND = LabKind(
    id="kv-math",
    title="Your formula against llama.cpp's own figure",
    phenomenon="4-bit K and V are not 4 times smaller than 16-bit ones, and contexts come in steps of 256.",
    producer="tutor.labs.kv_math:KVMathProducer",
    knobs=(
        Knob("n_ctx", "n_ctx", "int", 1000, "Tokens of context.", 1, 8192),
        Knob("n_seq", "sequences", "int", 1, "Sequences that the context serves.", 1, 8),
        Knob("type_k", "type of K", "choice", "f16", "Number format of the keys.", choices=TYPES),
        Knob("type_v", "type of V", "choice", "f16", "Number format of the values.", choices=TYPES),
        Knob("unified", "one pool", "bool", True, "One pool of cells, or a part for each sequence."),
    ),
    panels=("buffers",),
    plain=buffers_text,
)
