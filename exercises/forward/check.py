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
NUM_PROMPTS = 20
NUM_ROWS = 2048
TEXTS = (
    "The lighthouse keeper climbed the stairs every evening, lit the lamp and wrote the weather of the day into a "
    "thick book. When a storm came, he stayed awake and listened to the wind.",
    "To bake bread you need flour, water, salt and yeast. Mix them, wait until the dough has doubled, then shape it "
    "and bake it in a hot oven for about forty minutes.",
    "A computer stores numbers as bits. Eight bits make a byte, and a byte can hold two hundred and fifty six "
    "different values, from zero to two hundred and fifty five.",
    "The river starts in the mountains, crosses three countries and ends in the sea. On its way it turns mills, "
    "carries ships and waters the fields of many villages.",
    "If you want to learn a language, speak it every day. Read simple books, listen to songs, and do not be afraid "
    "of mistakes, because mistakes show you what to practise next.",
    "In the morning the train was late again. The passengers stood on the platform, drank coffee from paper cups and "
    "talked about the weather, the football match and the price of tickets.",
)


def _texts(ctx: Context, count: int) -> list[str]:
    """The same texts in every check of a run."""
    return [str(text) for text in np.random.default_rng(ctx.seed).choice(TEXTS, count, replace=False)]


def _captured(ctx: Context) -> dict[str, Array]:
    """One forward pass over a text: tensors as [T, width]."""
    names = [
        "l_out-29",
        "result_norm",
        *(f"{kind}-{layer}" for kind in ("ffn_norm", "ffn_out") for layer in LAYERS),
    ]

    def make() -> dict[str, Array]:
        seen = ctx.model.capture(ctx.model.tokenize(_texts(ctx, 1)[0]), names)
        return {name: _rows(arrays) for name, arrays in seen.items()}

    return ctx.cached("one text", make)


def _rows(arrays: list[Array]) -> Array:
    return arrays[0].reshape(-1, arrays[0].shape[-1])


# --- RMSNorm ------------------------------------------------------------------------------------


def _scaled(x: Array, w: Array, eps: float = 1e-5) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * w


def _expect_norm(
    ctx: Context, answer: Any, x: Array, w: Array, expected: Array, where: str, eps: float = 1e-5
) -> None:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    mean_square = (wide * wide).mean(axis=-1, keepdims=True)
    mistakes: tuple[tuple[str, Callable[[], Array], str], ...] = (
        ("layernorm", lambda: centred / np.sqrt(centred.var(axis=-1, keepdims=True) + eps) * w,
         "That is LayerNorm. RMSNorm never centres."),
        ("no-weight", lambda: _scaled(x, np.ones_like(w), eps), "You dropped the learned gain w."),
        ("no-root", lambda: wide / (mean_square + eps) * w, "You divided by the mean square. Take its root first."),
        ("sum", lambda: wide / np.sqrt(mean_square * x.shape[-1] + eps) * w,
         "You divided by the row's length: use the mean of the squares, not their sum."),
        ("columns", lambda: wide / np.sqrt((wide * wide).mean(axis=0, keepdims=True) + eps) * w,
         "You took the mean over the tokens. Each row is scaled by its own mean square (axis -1)."),
        ("all", lambda: wide / np.sqrt((wide * wide).mean() + eps) * w,
         "You took one mean over the whole array. Each row has its own."),
        ("centred", lambda: centred / np.sqrt(mean_square + eps) * w, "RMSNorm never centres: do not subtract the mean."),
    )  # fmt: skip
    for ident, variant, message in mistakes:
        ctx.misconception(ident, lambda variant=variant: close(answer, variant()), message)
    ctx.expect_close(answer, expected, max_relative=EXACT, dtype="float32", where=where)


@check("rmsnorm", "l_out-29 → result_norm of llama.cpp, and one row alone, relative error up to 1e-5")
def rmsnorm(ctx: Context) -> None:
    seen, gain = _captured(ctx), ctx.model.weight("output_norm.weight")
    x, expected = seen["l_out-29"], seen["result_norm"]
    _expect_norm(ctx, ctx.guest.call("rmsnorm", x, gain), x, gain, expected, "rmsnorm(l_out-29)")
    at = int(ctx.rng.integers(len(x)))
    one = x[at : at + 1]
    _expect_norm(
        ctx, ctx.guest.call("rmsnorm", one, gain), one, gain, expected[at : at + 1], "rmsnorm of one row"
    )


@check("rmsnorm, small rows", "rows near zero and a larger eps, against float64, relative error up to 1e-5")
def small_rows(ctx: Context) -> None:
    width = int(ctx.rng.integers(5, 40))
    w = ctx.rng.normal(1.0, 0.3, width).astype(np.float32)
    x = (ctx.rng.normal(0.0, 1.0, (4, width)) * np.array([[1.0], [3e-3], [1e3], [0.0]])).astype(np.float32)
    for eps in (1e-5, float(ctx.rng.uniform(0.05, 0.5))):
        answer = ctx.guest.call("rmsnorm", x, w, eps=eps)
        ctx.misconception(
            "eps-ignored",
            lambda answer=answer, eps=eps: eps != 1e-5 and close(answer, _scaled(x, w, 1e-5)),
            "You use a fixed eps. Take the one that is passed in.",
        )
        ctx.misconception(
            "eps-outside",
            lambda answer=answer, eps=eps: close(
                answer, x / (np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True)) + eps) * w
            ),
            "eps is added to the mean square, under the root, not to the root.",
        )
        ctx.misconception(
            "no-eps",
            lambda answer=answer: not np.isfinite(answer[3]).all(),
            "A row of zeros divided by zero. Add eps under the root.",
        )
        for row in range(len(x)):
            expected = _scaled(x, w, eps)[row]
            where = f"rmsnorm row {row} with eps {eps:.3g}"
            ctx.expect(len(answer) == len(x), f"{where}: expected {len(x)} rows.", actual=answer)
            ctx.expect_close(answer[row], expected, max_relative=EXACT, dtype="float32", where=where)


# --- SwiGLU -------------------------------------------------------------------------------------


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _silu(z: Array) -> Array:
    return z * _sigmoid(z)


def _expect_swiglu(
    ctx: Context,
    answer: Any,
    x: Array,
    weights: tuple[Array, ...],
    expected: Array,
    tolerance: float,
    where: str,
) -> None:
    gate_w, up_w, down_w = weights
    gate, up = x @ gate_w.T, x @ up_w.T
    mistakes: tuple[tuple[str, Callable[[], Array], str], ...] = (
        ("swapped", lambda: (_silu(up) * gate) @ down_w.T, "silu belongs on the gate projection."),
        ("relu", lambda: (np.maximum(gate, 0) * up) @ down_w.T, "SwiGLU uses silu(z)=z·σ(z), you used ReLU."),
        ("sigmoid", lambda: (_sigmoid(gate) * up) @ down_w.T, "You forgot the z in z·σ(z)."),
        ("linear", lambda: (gate * up) @ down_w.T, "There is no silu on the gate."),
        ("no-up", lambda: _silu(gate) @ down_w.T, "You left the up projection out: multiply silu(gate) by it."),
        ("both", lambda: (_silu(gate) * _silu(up)) @ down_w.T, "silu goes on the gate only, not on up."),
        ("outside", lambda: _silu(gate * up) @ down_w.T, "silu goes on the gate before the product, not after it."),
        ("residual", lambda: expected + x, "You added x. The block adds it, not SwiGLU."),
    )  # fmt: skip
    for ident, variant, message in mistakes:
        ctx.misconception(
            ident, lambda variant=variant: close(answer, variant(), max(1e-3, tolerance / 2)), message
        )
    ctx.expect_close(answer, expected, max_relative=tolerance, dtype="float32", where=where)


@check("swiglu", "ffn_norm → ffn_out of llama.cpp in layers 0, 14 and 29, relative error up to 3e-2")
def swiglu(ctx: Context) -> None:
    seen = _captured(ctx)
    for layer in LAYERS:
        weights = tuple(ctx.model.weight(f"blk.{layer}.ffn_{name}.weight") for name in ("gate", "up", "down"))
        x, expected = seen[f"ffn_norm-{layer}"], seen[f"ffn_out-{layer}"]
        answer = ctx.guest.call("swiglu", x, *weights)
        _expect_swiglu(ctx, answer, x, weights, expected, ROUNDED, f"swiglu in layer {layer}")


@check("swiglu, exact", "small random weights and one token, against float64, relative error up to 1e-5")
def swiglu_exact(ctx: Context) -> None:
    width, wide = (int(size) for size in ctx.rng.integers(4, 20, 2))
    shapes = ((wide, width), (wide, width), (width, wide))
    weights = tuple(ctx.rng.normal(0.0, 0.7, shape).astype(np.float32) for shape in shapes)
    for tokens in (1, int(ctx.rng.integers(2, 9))):
        x = ctx.rng.normal(0.0, 1.5, (tokens, width)).astype(np.float32)
        expected = _exact_swiglu(x, weights)
        answer = ctx.guest.call("swiglu", x, *weights)
        _expect_swiglu(ctx, answer, x, weights, expected, EXACT, f"swiglu of {tokens} tokens")


def _exact_swiglu(x: Array, weights: tuple[Array, ...]) -> Array:
    gate_w, up_w, down_w = (weight.astype(np.float64) for weight in weights)
    wide = x.astype(np.float64)
    return (_silu(wide @ gate_w.T) * (wide @ up_w.T)) @ down_w.T


@check(
    "swiglu, large values", "gates of ±1,000 and more stay finite, against float64, relative error up to 1e-5"
)
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


def _head_cases(ctx: Context) -> dict[str, Array]:
    """The prompts are prefixes of two texts: those whose best id leads the second by most.

    h: [20, 576] states; ids: [2048] candidate ids; logits: [20, 2048] of llama.cpp.
    """

    def make() -> dict[str, Array]:
        states, logits = [], []
        for text in _texts(ctx, 2):
            seen = ctx.model.capture(ctx.model.tokenize(text), ["result_norm", "result_output"])
            states.append(_rows(seen["result_norm"]))
            logits.append(_rows(seen["result_output"]))
        h, rows = np.concatenate(states), np.concatenate(logits)
        two_best = np.partition(rows, -2, axis=-1)[:, -2:]
        chosen = np.argsort(two_best[:, 0] - two_best[:, 1])[:NUM_PROMPTS]
        best = np.unique(np.argpartition(rows[chosen], -32, axis=-1)[:, -32:])
        others = np.setdiff1d(np.arange(rows.shape[-1]), best)
        ids = ctx.rng.permutation(
            np.concatenate([best, ctx.rng.choice(others, NUM_ROWS - len(best), replace=False)])
        )
        return {"h": h[chosen], "ids": ids, "logits": rows[chosen][:, ids]}

    return ctx.cached("head", make)


@check("head", "logits of llama.cpp for 20 prompts: the best id is equal, relative error up to 3e-2")
def head(ctx: Context) -> None:
    cases = _head_cases(ctx)
    table = ctx.model.weight("token_embd.weight")[cases["ids"]]
    sent = ctx.guest.put(table)
    for number, (h, expected) in enumerate(zip(cases["h"], cases["logits"], strict=True)):
        answer = ctx.guest.call("head", h, sent)
        exact = table @ h
        shifted = np.exp(exact - exact.max())
        ctx.misconception(
            "softmax",
            lambda answer=answer, p=shifted / shifted.sum(): close(answer, p),
            "Those are probabilities. The head returns raw logits; softmax belongs to sampling.",
        )
        ctx.misconception(
            "scaled",
            lambda answer=answer, exact=exact: close(answer, exact / np.sqrt(h.size)),
            "The head has no 1/√n: that factor belongs to attention scores.",
        )
        ctx.misconception(
            "cosine",
            lambda answer=answer, exact=exact, h=h: close(
                answer, exact / np.linalg.norm(h) / np.linalg.norm(table, axis=1)
            ),
            "You divided by the lengths. A logit is the plain product of h and the id's row.",
        )
        where = f"head of prompt {number}"
        ctx.expect_close(answer, expected, max_relative=ROUNDED, dtype="float32", where=where)
        best, wanted = int(np.argmax(answer)), int(np.argmax(expected))
        note = "Another row has the highest logit than in llama.cpp."
        ctx.expect_equal(best, wanted, where=f"argmax of {where}", note=note)
