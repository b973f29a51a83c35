"""Checks of `kv-math`: the learner's bytes against the buffers that llama.cpp really allocates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from tutor.grading.kit import Context, check, show

MIB = 2**20
LOG_ROUNDING = 0.005 * MIB + 1  # llama.cpp's log gives MiB with two decimals
STATE_EXTRA = 12  # bytes a token of a saved sequence beside K and V: its position and its owner
# storage type -> (numbers a block, bytes a block)
TYPES = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q8_0": (32, 34), "q4_1": (32, 20), "q4_0": (32, 18)}
WITHOUT_SCALE = {**TYPES, "q8_0": (32, 32), "q4_1": (32, 16), "q4_0": (32, 16)}


class Shape(NamedTuple):
    """What kv_bytes gets of a model, and its query heads, which it must not need."""

    layers: int
    kv_heads: int
    head_dim: int
    q_heads: int = 0


class Setting(NamedTuple):
    """The other arguments of kv_bytes, in its order."""

    n_ctx: int
    n_seq: int = 1
    type_k: str = "f16"
    type_v: str | None = "f16"
    unified: bool = True


SMOLLM2 = Shape(30, 3, 64, 9)
# The first settings ask one thing each, so that a mistake shows itself alone.
FIRST = (
    Setting(1024),
    Setting(1024, 1, "q4_0", "q4_0"),
    Setting(1024, 1, "q8_0", "q8_0"),
    Setting(1024, 1, "f16", "q4_1"),
    Setting(1000),
    Setting(1024, 4),
    Setting(1024, 2, unified=False),
    Setting(1000, 3, unified=False),
    Setting(770, 3, unified=False),
    Setting(1, 1, "bf16", "f16"),
)
NUM_SETTINGS = 24


def padded(cells: int) -> int:
    return -(-cells // 256) * 256


def num_cells(s: Setting) -> int:
    return padded(s.n_ctx) if s.unified else padded(padded(s.n_ctx) // s.n_seq) * s.n_seq


def row_bytes(numbers: int, kind: str | None, types: dict[str, tuple[int, int]] = TYPES) -> int:
    if kind is None:
        return 0
    per_block, size = types[kind]
    return numbers // per_block * size


def cell_bytes(shape: Shape, *kinds: str | None, types: dict[str, tuple[int, int]] = TYPES) -> int:
    """Bytes of one cell over all layers that holds one row for each of `kinds`."""
    row = shape.kv_heads * shape.head_dim
    return shape.layers * sum(row_bytes(row, kind, types) for kind in kinds)


def formula(shape: Shape, s: Setting) -> int:
    return num_cells(s) * cell_bytes(shape, s.type_k, s.type_v)


def in_mib(size: float) -> str:
    return f"{size / MIB:.2f} MiB"


def mistakes(shape: Shape, s: Setting, got: float) -> Iterator[tuple[str, float, str]]:
    """(id, the bytes that this mistake gives, what to say) for one setting."""
    cells, full = num_cells(s), cell_bytes(shape, s.type_k, s.type_v)
    mine, right = in_mib(got), in_mib(cells * full)
    if shape.q_heads:
        q, kv = shape.q_heads, shape.kv_heads
        heads = f"{mine}: you used {q} query heads; the cache holds {kv} KV heads ({right})."
        yield "query heads", cells * full * q / kv, heads
    if s.type_v is None:
        stored = f"{mine}: type_v=None means that no V is stored; only the K row counts ({right})."
        yield "V that is not there", cells * cell_bytes(shape, s.type_k, s.type_k), stored
        yield "V that is not there", cells * cell_bytes(shape, s.type_k, "f16"), stored
    else:
        yield "only K", cells * cell_bytes(shape, s.type_k), f"{mine}: only K. V is stored as well ({right})."
        both = f"{mine}: V has its own type. Here K is {s.type_k} and V is {s.type_v} ({right})."
        yield "one type for both", cells * cell_bytes(shape, s.type_k, s.type_k), both
        yield "one type for both", cells * cell_bytes(shape, s.type_v, s.type_v), both
    scale = f"{mine}: each 32-block also carries a 2-byte scale ({right})."
    yield "no scale", cells * cell_bytes(shape, s.type_k, s.type_v, types=WITHOUT_SCALE), scale
    yield "bits for bytes", 8 * cells * full, f"{mine}: 8 times too much. You counted bits; bytes are asked."
    yield from cell_mistakes(s, full)


def cell_mistakes(s: Setting, full: int) -> Iterator[tuple[str, float, str]]:
    """Mistakes in the number of cells; `full` is the bytes of one cell."""
    asked, all_cells = s.n_ctx, padded(s.n_ctx)
    yield "no padding", asked * full, f"llama.cpp rounds {asked} up to {all_cells} cells."
    down = f"llama.cpp rounds up: {asked} tokens get {all_cells} cells."
    yield "rounded down", asked // 256 * 256 * full, down
    yield "rounded down", max(asked // 256, 1) * 256 * full, down
    if asked == all_cells:
        yield "one step more", (asked + 256) * full, f"{asked} is a multiple of 256 already: it stays."
    if s.unified:
        pool = f"unified=True is one pool: {s.n_seq} sequences share the {all_cells} cells."
        yield "pool for each sequence", all_cells * s.n_seq * full, pool
        return
    share = all_cells // s.n_seq
    own = (
        f"With unified=False each sequence has its own cells: {all_cells} // {s.n_seq} = {share}, "
        f"rounded up to {padded(share)}, times {s.n_seq}."
    )
    yield "no cells of their own", all_cells * full, own
    yield "share not rounded", share * s.n_seq * full, own
    undivided = f"The cells are divided among the {s.n_seq} sequences; not each one gets all {all_cells}."
    yield "not divided", all_cells * s.n_seq * full, undivided
    early = (
        f"Round first, then divide: {asked} becomes {all_cells}, and a share is {share}, rounded up again."
    )
    yield "divided before rounding", padded(asked // s.n_seq) * s.n_seq * full, early
    one = f"That is the share of one sequence; the buffer holds all {s.n_seq}."
    yield "one share", padded(share) * full, one


def call_text(shape: Shape, s: Setting) -> str:
    names = (f"n_ctx={s.n_ctx}", f"n_seq={s.n_seq}", f"type_k={s.type_k!r}", f"type_v={s.type_v!r}")
    numbers = ", ".join(map(str, shape[:3]))
    return f"kv_bytes({numbers}, {', '.join(names)}, unified={s.unified})"


def ask(ctx: Context, shape: Shape, s: Setting, expected: int, tolerance: float, source: str) -> None:
    """Call kv_bytes and compare; a wrong answer is looked up among the known mistakes."""
    got: Any = ctx.guest.call("kv_bytes", *shape[:3], *s)
    call = call_text(shape, s)
    if type(got) not in (int, float) or not math.isfinite(got):
        ctx.fail(f"{call} is {show(got, 60)}, expected a number of bytes.", expected=expected, actual=got)
    if abs(got - expected) <= tolerance:
        return
    known = ((ident, text) for ident, size, text in mistakes(shape, s, got) if abs(got - size) < 1)
    for ident, message in itertools.islice(known, 1):
        ctx.misconception(ident, True, message)
    sentence = f"{call} is {in_mib(got)} ({got:,} bytes); {source} {in_mib(expected)}."
    ctx.fail(sentence, expected=expected, actual=got, where=call)


def settings(ctx: Context) -> list[Setting]:
    """The first settings, then random ones up to NUM_SETTINGS."""
    chosen = list(FIRST)
    kinds = list(TYPES)
    while len(chosen) < NUM_SETTINGS:
        type_k, type_v = (kinds[int(i)] for i in ctx.rng.integers(len(kinds), size=2))
        # not below n_seq: llama.cpp ends the process over fewer tokens than sequences
        n_ctx, n_seq = int(ctx.rng.integers(8, 1900)), int(ctx.rng.integers(1, 6))
        chosen.append(Setting(n_ctx, n_seq, type_k, type_v, bool(ctx.rng.integers(2))))
    return chosen


@check(
    "llama.cpp's own buffers",
    f"{NUM_SETTINGS} settings of the bundled model against the buffer that llama.cpp allocates, ± 0.005 MiB",
)
def own_buffers(ctx: Context) -> None:
    wanted = settings(ctx)

    def make() -> list[int]:
        return [ctx.model.kv_buffer_bytes(*s)[1] for s in wanted]  # type: ignore[arg-type]

    for s, measured in zip(wanted, ctx.cached("buffers", make), strict=True):
        ask(ctx, SMOLLM2, s, measured, LOG_ROUNDING, "llama.cpp allocates")


@check("one more token", "256 more cells against 256 × the bytes that a token adds to a saved sequence")
def one_more_token(ctx: Context) -> None:
    def make() -> int:
        ids = ctx.model.tokenize("A cache grows with every token that is read.")
        with ctx.model.session(256) as session:
            sizes = []
            for position, token in enumerate(ids[:5]):
                session.decode([token], [position], [0], [False])
                sizes.append(len(session.save(0)))
        return (sizes[-1] - sizes[0]) // (len(sizes) - 1)

    a_token = ctx.cached("saved bytes a token", make) - STATE_EXTRA
    small, large = (
        ctx.guest.call("kv_bytes", *SMOLLM2[:3], n_ctx, type_k="bf16", type_v="bf16") for n_ctx in (512, 768)
    )
    ctx.expect_equal(
        large - small,
        256 * a_token,
        where="kv_bytes(n_ctx=768) − kv_bytes(n_ctx=512), bf16",
        note=f"A token adds {a_token:,} bytes of K and V to llama.cpp's saved state.",
    )


@check("arguments left out", "the defaults are one sequence, f16 for K and V, and one pool: exact bytes")
def defaults(ctx: Context) -> None:
    cases: tuple[tuple[dict[str, Any], Setting], ...] = (
        ({}, Setting(600)),
        ({"n_seq": 4}, Setting(600, 4)),
        ({"unified": False}, Setting(600, unified=False)),
    )
    for given, meant in cases:
        got = ctx.guest.call("kv_bytes", *SMOLLM2[:3], 600, **given)
        left_out = ", ".join(f"{name}={value}" for name, value in given.items()) or "nothing"
        note = f"Given after n_ctx: {left_out}. Keep the defaults of the signature."
        ctx.expect_equal(got, formula(SMOLLM2, meant), where="kv_bytes(30, 3, 64, 600, …)", note=note)


# Shapes from the models' published config.json; DeepSeek-V3 stores one vector of 512 + 64 numbers and no V.
PUBLISHED = (
    (Shape(32, 8, 128, 32), Setting(131072)),
    (Shape(80, 8, 128, 64), Setting(131072)),
    (Shape(80, 8, 128, 64), Setting(8192, 1, "q4_0", "q8_0")),
    (Shape(32, 8, 128, 32), Setting(8192, 1, "q4_1", "q4_1")),
    (Shape(28, 4, 128, 28), Setting(32768, 1, "q8_0", "q4_0")),
    (Shape(61, 1, 576), Setting(32768, 1, "bf16", None)),
    (Shape(61, 1, 576), Setting(5000, 4, "q8_0", None, unified=False)),
)


@check(
    "other models", "published shapes and random ones, K and V of different types or no V at all: exact bytes"
)
def other_models(ctx: Context) -> None:
    cases = list(PUBLISHED)
    kinds = list(TYPES)
    for _ in range(8):
        shape = Shape(*(int(ctx.rng.integers(low, high)) for low, high in ((2, 90), (1, 17))), 128)
        type_k, type_v = (kinds[int(i)] for i in ctx.rng.integers(len(kinds), size=2))
        n_ctx, n_seq = int(ctx.rng.integers(300, 40_000)), int(ctx.rng.integers(1, 9))
        cases.append((shape, Setting(n_ctx, n_seq, type_k, type_v, bool(ctx.rng.integers(2)))))
    for shape, s in cases:
        ask(ctx, shape, s, formula(shape, s), 0.5, "the formula gives")


class Gpu(NamedTuple):
    """Arguments of max_seqs, in its order."""

    hbm: float
    util: float
    weights: float
    overhead: float
    kv_per_tok: int
    ctx: int


FITS_EXACTLY = Gpu(64 * 2**30, 0.5, 16 * 2**30, 2**30, 131072, 8192)  # 15 GiB left, 1 GiB a sequence
TOO_SMALL = Gpu(24e9, 0.9, 26e9, 2e9, 131072, 4096)


def fits(g: Gpu, share: float | None = None) -> float:
    """Sequences, fractions included."""
    used = g.hbm * (g.util if share is None else share)
    return (used - g.weights - g.overhead) / (g.kv_per_tok * g.ctx)


def gpus(ctx: Context) -> list[Gpu]:
    """The 8B model on an H100, the edges, and random ones whose answer does not hang on float rounding."""
    chosen = [Gpu(80e9, 0.92, 16.06e9, 3e9, 131072, 4096), FITS_EXACTLY, TOO_SMALL]
    while len(chosen) < 16:
        hbm, util = float(ctx.rng.integers(24, 192)) * 1e9, float(ctx.rng.integers(50, 99)) / 100
        weights, overhead = (float(ctx.rng.integers(low, high)) * 1e8 for low, high in ((20, 170), (5, 50)))
        g = Gpu(
            hbm,
            util,
            weights,
            overhead,
            int(ctx.rng.integers(20, 330)) * 1024,
            int(ctx.rng.integers(500, 33_000)),
        )
        if 1e-6 < fits(g) % 1 < 1 - 1e-6:
            chosen.append(g)
    return chosen


@check("users on a GPU", "an 8B model on an H100, 13 random GPUs, an exact fit and one that is too small")
def users_on_a_gpu(ctx: Context) -> None:
    for g in gpus(ctx):
        got: Any = ctx.guest.call("max_seqs", *g)
        expected = max(0, math.floor(fits(g)))
        if got == expected and type(got) in (int, float):
            continue
        known = ((ident, text) for ident, value, text in gpu_mistakes(g) if got == value)
        for ident, message in itertools.islice(known, 1):
            ctx.misconception(ident, True, message)
        call = f"max_seqs({', '.join(f'{value:g}' for value in g)})"
        ctx.fail(
            f"{call} is {show(got, 40)}, expected {expected}.", expected=expected, actual=got, where=call
        )


def gpu_mistakes(g: Gpu) -> Iterator[tuple[str, float, str]]:
    """(id, the answer that this mistake gives, what to say)."""
    bare = g._replace(weights=0.0)
    yield (
        "util ignored",
        max(0, math.floor(fits(g, 1.0))),
        f"The server may use a share of the memory: {g.util:g} × hbm.",
    )
    yield (
        "weights ignored",
        max(0, math.floor(fits(bare))),
        "The weights come off first: they lie in the same memory.",
    )
    lean = g._replace(overhead=0.0)
    yield "overhead ignored", max(0, math.floor(fits(lean))), "The overhead comes off as well."
    if fits(g) < 0:
        yield (
            "negative",
            math.floor(fits(g)),
            "If the weights do not fit, the answer is 0, not a negative number.",
        )
        yield (
            "negative",
            math.trunc(fits(g)),
            "If the weights do not fit, the answer is 0, not a negative number.",
        )
    rounded = "Round down: a sequence that fits only in part does not fit."
    yield "rounded", round(fits(g)), rounded
    yield "rounded up", math.ceil(fits(g)), rounded
    yield "fraction", fits(g), "Return whole sequences: round down to an int."
    late = math.floor(fits(g._replace(weights=0.0, overhead=0.0), 1.0) * g.util)
    yield "nothing taken off", late, "Weights and overhead come off first."
    yield "tokens", math.floor(fits(g) * g.ctx), "That is the number of tokens. A sequence has ctx of them."
