"""Checks of `rmsnorm`, `swiglu` and `head` against tensors captured inside llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tutor.grading.kit import Context, check, close

Array = np.ndarray[Any, Any]

LAYERS = (0, 14, 29)
EXACT = 1e-5  # float32 rounding only
ROUNDED = 3e-2  # llama.cpp rounds activations to 8 bits; measured 0.009 (layer 0) to 0.020 (layer 29)
EPS = 1e-5
NUM_PROMPTS = 20
NUM_ROWS = 2048
TEXTS = (
    "The lighthouse keeper climbed the stairs every evening, lit the lamp and wrote the weather of "
    "the day into a thick book. When a storm came, he stayed awake and listened to the wind.",
    "To bake bread you need flour, water, salt and yeast. Mix them, wait until the dough has doubled, "
    "then shape it and bake it in a hot oven for about forty minutes.",
    "A computer stores numbers as bits. Eight bits make a byte, and a byte can hold two hundred and "
    "fifty six different values, from zero to two hundred and fifty five.",
    "The river starts in the mountains, crosses three countries and ends in the sea. On its way it "
    "turns mills, carries ships and waters the fields of many villages.",
    "If you want to learn a language, speak it every day. Read simple books, listen to songs, and do "
    "not be afraid of mistakes, because mistakes show you what to practise next.",
    "In the morning the train was late again. The passengers stood on the platform, drank coffee from "
    "paper cups and talked about the weather, the football match and the price of tickets.",
)


def _captured(ctx: Context) -> dict[str, Array]:
    """One forward pass over two texts: tensors as [T, width], and the cases of the head.

    The prompts of the head are prefixes of the texts: those whose best id leads the second by most.
    head_h: [20, 576] states; head_ids: [2048] ids; head_logits: [20, 2048] of llama.cpp.
    """

    def make() -> dict[str, Array]:
        rng = np.random.default_rng(ctx.seed)
        ids = ctx.model.tokenize(" ".join(rng.choice(TEXTS, 2, replace=False)))
        names = [f"{kind}-{layer}" for kind in ("ffn_norm", "ffn_out") for layer in LAYERS]
        seen = ctx.model.capture(ids, [*names, "l_out-29", "result_norm", "result_output"])
        tensors = {name: arrays[0].reshape(-1, arrays[0].shape[-1]) for name, arrays in seen.items()}
        logits = tensors.pop("result_output")
        return tensors | _head_cases(rng, tensors["result_norm"], logits)

    return ctx.cached("two texts", make)


def _head_cases(rng: np.random.Generator, states: Array, logits: Array) -> dict[str, Array]:
    second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
    chosen = np.argsort(first - second)[-NUM_PROMPTS:]
    best = np.unique(np.argpartition(logits[chosen], -32, axis=-1)[:, -32:])
    others = np.setdiff1d(np.arange(logits.shape[-1]), best)
    picked = [best, rng.choice(others, NUM_ROWS - len(best), replace=False)]
    ids = rng.permutation(np.concatenate(picked))
    return {"head_h": states[chosen], "head_ids": ids, "head_logits": logits[chosen][:, ids]}


# --- RMSNorm ------------------------------------------------------------------------------------


def _mean_square(x: Array) -> Array:
    return np.square(x).mean(axis=-1, keepdims=True)


def _norm(x: Array, w: Array, eps: float = EPS) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt(_mean_square(x) + eps) * w


def _expect_norm(ctx: Context, answer: Any, x: Array, w: Array, expected: Array, where: str) -> None:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    squares = _mean_square(wide)
    mistakes: tuple[tuple[str, Callable[[], Array], str], ...] = (
        (
            "layernorm",
            lambda: centred / np.sqrt(_mean_square(centred) + EPS) * w,
            "That is LayerNorm. RMSNorm never centres.",
        ),
        (
            "centred",
            lambda: centred / np.sqrt(squares + EPS) * w,
            "RMSNorm never centres: do not subtract the mean.",
        ),
        ("no-weight", lambda: _norm(x, np.ones_like(w)), "You dropped the learned gain w."),
        (
            "no-root",
            lambda: wide / (squares + EPS) * w,
            "You divided by the mean square. Take its root first.",
        ),
        (
            "sum",
            lambda: wide / np.sqrt(squares * x.shape[-1] + EPS) * w,
            "You divided by the row's length: use the mean of the squares, not their sum.",
        ),
        (
            "columns",
            lambda: wide / np.sqrt(np.square(wide).mean(axis=0, keepdims=True) + EPS) * w,
            "You took the mean over the tokens. Each row is scaled by its own mean square (axis -1).",
        ),
        (
            "all",
            lambda: wide / np.sqrt(np.square(wide).mean() + EPS) * w,
            "You took one mean over the whole array. Each row has its own.",
        ),
    )
    for ident, variant, message in mistakes:
        ctx.misconception(ident, lambda variant=variant: close(answer, variant()), message)
    ctx.expect_close(answer, expected, max_relative=EXACT, dtype="float32", where=where)


@check("rmsnorm", "l_out-29 to result_norm of llama.cpp, and one row alone, relative error up to 1e-5")
def rmsnorm(ctx: Context) -> None:
    seen, gain = _captured(ctx), ctx.model.weight("output_norm.weight")
    x, expected = seen["l_out-29"], seen["result_norm"]
    at = int(ctx.rng.integers(len(x)))
    for rows, where in ((slice(None), "rmsnorm(l_out-29)"), (slice(at, at + 1), "rmsnorm of one row")):
        answer = ctx.guest.call("rmsnorm", x[rows], gain)
        _expect_norm(ctx, answer, x[rows], gain, expected[rows], where)


@check("rmsnorm, small rows", "rows near zero and a larger eps, against float64, relative error up to 1e-5")
def small_rows(ctx: Context) -> None:
    width = int(ctx.rng.integers(5, 40))
    w = ctx.rng.normal(1.0, 0.3, width).astype(np.float32)
    x = (ctx.rng.normal(0.0, 1.0, (4, width)) * np.array([[1.0], [3e-3], [1e3], [0.0]])).astype(np.float32)
    for eps in (None, float(ctx.rng.uniform(0.05, 0.5))):
        given = {} if eps is None else {"eps": eps}
        answer = ctx.guest.call("rmsnorm", x, w, **given)
        _expect_eps(ctx, answer, x, w, EPS if eps is None else eps)


def _expect_eps(ctx: Context, answer: Any, x: Array, w: Array, eps: float) -> None:
    root = np.sqrt(_mean_square(x.astype(np.float64)))
    ctx.misconception(
        "eps-ignored",
        lambda: eps != EPS and close(answer, _norm(x, w)),
        "You use a fixed eps. Take the one that is passed in.",
    )
    ctx.misconception(
        "eps-outside",
        lambda: close(answer, x / (root + eps) * w),
        "eps is added to the mean square, under the root, not to the root.",
    )
    ctx.misconception(
        "no-eps",
        lambda: not np.isfinite(answer[3]).all(),
        "A row of zeros divided by zero. Add eps under the root.",
    )
    expected = _norm(x, w, eps)
    shape = np.shape(answer)
    ctx.expect(shape == x.shape, f"rmsnorm returned shape {shape}, expected {x.shape}.", actual=answer)
    for row in range(len(x)):  # one by one: the large row would hide the small ones
        where = f"rmsnorm row {row} with eps {eps:.3g}"
        ctx.expect_close(answer[row], expected[row], max_relative=EXACT, dtype="float32", where=where)


# --- SwiGLU -------------------------------------------------------------------------------------


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _silu(z: Array) -> Array:
    return z * _sigmoid(z)


# What goes into the down projection, from gate and up.
WRONG_SWIGLUS: tuple[tuple[str, Callable[[Array, Array], Array], str], ...] = (
    ("swapped", lambda gate, up: _silu(up) * gate, "silu belongs on the gate projection."),
    ("relu", lambda gate, up: np.maximum(gate, 0) * up, "SwiGLU uses silu(z)=z·σ(z), you used ReLU."),
    ("sigmoid", lambda gate, up: _sigmoid(gate) * up, "You forgot the z in z·σ(z)."),
    ("linear", lambda gate, up: gate * up, "There is no silu on the gate."),
    ("no-up", lambda gate, up: _silu(gate), "You left the up projection out: multiply by it."),
    ("both", lambda gate, up: _silu(gate) * _silu(up), "silu goes on the gate only, not on up."),
    ("outside", lambda gate, up: _silu(gate * up), "silu goes on the gate, before the product."),
    ("sum", lambda gate, up: _silu(gate) + up, "Gate and up are multiplied, not added."),
)


def _expect_swiglu(
    ctx: Context, x: Array, weights: tuple[Array, ...], expected: Array, tolerance: float, where: str
) -> None:
    answer = ctx.guest.call("swiglu", x, *weights)
    gate_w, up_w, down_w = weights
    for ident, mix, message in WRONG_SWIGLUS:
        ctx.misconception(
            ident,
            lambda mix=mix: close(answer, mix(x @ gate_w.T, x @ up_w.T) @ down_w.T),
            message,
        )
    ctx.misconception(
        "residual",
        lambda: close(answer, expected + x, tolerance),
        "You added x. The block adds it, not SwiGLU.",
    )
    ctx.expect_close(answer, expected, max_relative=tolerance, dtype="float32", where=where)


def _exact_swiglu(x: Array, weights: tuple[Array, ...]) -> Array:
    gate_w, up_w, down_w = (weight.astype(np.float64) for weight in weights)
    wide = x.astype(np.float64)
    return (_silu(wide @ gate_w.T) * (wide @ up_w.T)) @ down_w.T


@check("swiglu", "ffn_norm to ffn_out of llama.cpp in layers 0, 14 and 29, relative error up to 3e-2")
def swiglu(ctx: Context) -> None:
    seen = _captured(ctx)
    for layer in LAYERS:
        names = (f"blk.{layer}.ffn_{kind}.weight" for kind in ("gate", "up", "down"))
        weights = tuple(ctx.model.weight(name) for name in names)
        x, expected = seen[f"ffn_norm-{layer}"], seen[f"ffn_out-{layer}"]
        _expect_swiglu(ctx, x, weights, expected, ROUNDED, f"swiglu in layer {layer}")


@check("swiglu, exact", "small random weights and one token, against float64, relative error up to 1e-5")
def swiglu_exact(ctx: Context) -> None:
    width, wide = (int(size) for size in ctx.rng.integers(4, 20, 2))
    shapes = ((wide, width), (wide, width), (width, wide))
    weights = tuple(ctx.rng.normal(0.0, 0.7, shape).astype(np.float32) for shape in shapes)
    for tokens in (1, int(ctx.rng.integers(2, 9))):
        x = ctx.rng.normal(0.0, 1.5, (tokens, width)).astype(np.float32)
        expected = _exact_swiglu(x, weights)
        _expect_swiglu(ctx, x, weights, expected, EXACT, f"swiglu with T = {tokens}")


@check("swiglu, large values", "gates of ±1,000 and more, against float64, relative error up to 1e-5")
def large_values(ctx: Context) -> None:
    size = 6
    eye = np.eye(size, dtype=np.float32)
    x = (ctx.rng.choice([-1.0, 1.0], (3, size)) * ctx.rng.uniform(1e3, 1e5, (3, size))).astype(np.float32)
    x[0, :2] = (1e4, -1e4)
    answer = ctx.guest.call("swiglu", x, eye, eye, eye)
    ctx.misconception(
        "overflow",
        lambda: not np.isfinite(np.asarray(answer)).all(),
        "e^z overflowed and infinity divided by infinity is nan. Write silu as z / (1 + e^-z), or with tanh.",
    )
    expected = _exact_swiglu(x, (eye, eye, eye))
    ctx.expect_close(answer, expected, max_relative=EXACT, dtype="float32", where="swiglu of large values")


# --- head ---------------------------------------------------------------------------------------


@check("head", "logits of llama.cpp for 20 prompts: the best id is equal, relative error up to 3e-2")
def head(ctx: Context) -> None:
    seen = _captured(ctx)
    table = ctx.model.weight("token_embd.weight")[seen["head_ids"]]
    sent = ctx.guest.put(table)
    for number, (h, expected) in enumerate(zip(seen["head_h"], seen["head_logits"], strict=True)):
        _expect_logits(ctx, ctx.guest.call("head", h, sent), h, table, expected, f"head of prompt {number}")


def _expect_logits(ctx: Context, answer: Any, h: Array, table: Array, expected: Array, where: str) -> None:
    def softmax() -> Array:
        powers = np.exp(table @ h - np.max(table @ h))
        return powers / powers.sum()

    def cosine() -> Array:
        return table @ h / np.linalg.norm(h) / np.linalg.norm(table, axis=1)

    ctx.misconception(
        "softmax",
        lambda: close(answer, softmax()),
        "Those are probabilities. The head returns raw logits; softmax belongs to sampling.",
    )
    ctx.misconception(
        "scaled",
        lambda: close(answer, table @ h / np.sqrt(h.size)),
        "The head has no 1/√n: that factor belongs to attention scores.",
    )
    ctx.misconception(
        "cosine",
        lambda: close(answer, cosine()),
        "You divided by the lengths. A logit is the plain product of h and the id's row.",
    )
    ctx.expect_close(answer, expected, max_relative=ROUNDED, dtype="float32", where=where)
    best, wanted = int(np.argmax(answer)), int(np.argmax(expected))
    ctx.expect_equal(best, wanted, where=f"argmax of {where}")
