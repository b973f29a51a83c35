"""The lab of *KV cache size math*: real contexts, llama.cpp's own figures beside the formula's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import msgspec

from tutor.curriculum.formulas import padded_context, type_bytes
from tutor.labs.plain import buffers_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.llama.context import ContextConfig, KvType
from tutor.llama.session import Session
from tutor.trace import events as ev
from tutor.trace.views import LabView

TYPES = ("f16", "bf16", "q8_0", "q4_0", "q4_1", "f32")
COMPARED: tuple[KvType, ...] = ("f16", "q8_0", "q4_0")
TEXT = "The harbour keeps a book of every ship: its name, its cargo, the day it came and the day it left. "


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
        for kv_type in COMPARED:
            self._measure(f"K and V {kv_type}", n_ctx, n_seq, kv_type, kv_type, unified)
            yield
        yield from self._fill(n_ctx, min(int(self.knobs["fill"]), n_ctx))
        self.record(ev.Noted("n_ctx is rounded up to a multiple of 256."))
        edge = padded_context(n_ctx)
        self._measure("up to the edge", edge, n_seq, type_k, type_v, unified)
        yield
        self._measure("one token more", edge + 1, n_seq, type_k, type_v, unified)
        yield
        self.record(ev.Noted("Three sequences with a cache of their own: each is rounded up."))
        self._measure("3 separate caches", n_ctx, 3, type_k, type_v, False)

    def _fill(self, n_ctx: int, count: int) -> Iterator[None]:
        """One text goes into a cache of each type, token by token: one sequence, a step a token."""
        ids = self.model.tokenize(TEXT)
        ids = (ids * (count // len(ids) + 1))[:count]
        with ExitStack() as open_sessions:
            caches = [self._cache(open_sessions, kv_type, n_ctx) for kv_type in COMPARED if ids]
            for position, token in enumerate(ids):
                self.record(ev.Noted(f"Token {position + 1} of {count} leaves its K and V in each cache."))
                for session, empty in caches:
                    session.decode([token], [position], [0], [False])
                    state = len(session.save(0))
                    full = msgspec.structs.replace(
                        empty, num_tokens=position + 1, state_bytes=state,
                        formula_bytes=(position + 1) * self._token_bytes(empty.kv_type, empty.kv_type),
                    )  # fmt: skip
                    self.record(full)
                yield

    def _cache(self, open_sessions: ExitStack, kv_type: KvType, n_ctx: int) -> tuple[Session, ev.CacheFilled]:
        """A context of its own with K and V of that type, and what it allocated."""
        cells, buffer = self.model.kv_buffer_bytes(n_ctx, 1, kv_type, kv_type, True)
        config = ContextConfig(
            "shared", n_ctx, n_batch=32, n_ubatch=32, n_threads=self.model.n_threads,
            type_k=kv_type, type_v=kv_type,
        )  # fmt: skip
        session = open_sessions.enter_context(Session(self.model.model, config))
        return session, ev.CacheFilled(kv_type, 0, cells, 0, 0, buffer)

    def _token_bytes(self, type_k: str, type_v: str) -> int:
        """K and V of one token in all layers, by the formula."""
        dims = self.model.dims
        per_side = dims.n_layer * dims.n_head_kv * dims.head_dim
        return type_bytes(type_k, per_side) + type_bytes(type_v, per_side)

    def _measure(self, label: str, n_ctx: int, n_seq: int, type_k: str, type_v: str, unified: bool) -> None:
        cells, measured = self.model.kv_buffer_bytes(
            n_ctx, n_seq, cast(KvType, type_k), cast(KvType, type_v), unified
        )
        expected = padded_context(n_ctx) if unified else n_seq * padded_context(-(-n_ctx // n_seq))
        formula = expected * self._token_bytes(type_k, type_v)
        self.record(ev.BufferMeasured(label, n_ctx, n_seq, type_k, type_v, cells, measured, formula))


def kv_math_text(view: LabView) -> str:
    """The buffers, then how far each cache is filled."""
    lines = [buffers_text(view)]
    for each in view.fillings:
        lines.append(
            f"K and V {each.kv_type}: {each.num_tokens} of {each.num_cells} cells hold a token, "
            f"{each.formula_bytes / 2**20:.2f} MiB by the formula, saved by llama.cpp in "
            f"{each.state_bytes / 2**20:.2f} MiB, allocated {each.buffer_bytes / 2**20:.2f} MiB"
        )
    return "\n".join(lines)


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
        Knob("fill", "tokens to fill", "int", 48, "Tokens that are put into caches of three types.", 0, 512),
    ),
    panels=("buffers", "filling"),
    plain=kv_math_text,
)
