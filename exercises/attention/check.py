"""Checks of `attention` against Q, K, V and kqv_out captured inside llama.cpp, and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutor.grading.kit import Context, check, close

Array = np.ndarray[Any, Any]

LAYERS = (0, 10, 29)
LENGTHS = (1, 12, 60)
Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
ROUNDED = 1e-2  # llama.cpp rounds q, k, v and the weights to f16; measured up to 0.006
EXACT = 1e-5  # float32 rounding only
TEXTS = (
    "The lighthouse keeper climbed the stairs every evening, lit the lamp and wrote the weather of the day "
    "into a thick book. When a storm came, he stayed awake and listened to the wind, and in the morning he "
    "counted the ships that had passed. Nobody ever read the book, but one day somebody would.",
    "To bake bread you need flour, water, salt and yeast. Mix them, wait until the dough has doubled, then "
    "shape it and bake it in a hot oven for about forty minutes. The crust should be dark and the loaf "
    "should sound hollow when you knock on it. Let it cool before you cut it, however hungry you are.",
    "The river starts in the mountains, crosses three countries and ends in the sea. On its way it turns "
    "mills, carries ships and waters the fields of many villages. In spring it is brown and loud, in autumn "
    "it is clear and slow, and in some winters the children can walk across it from bank to bank.",
)


def _captured(ctx: Context) -> dict[str, Array]:
    """Rotated Q, K, V, [T, heads, 64], and the output before its projection, [T, 576], by "name-layer T"."""

    def make() -> dict[str, Array]:
        ids = ctx.model.tokenize(str(np.random.default_rng(ctx.seed).choice(TEXTS)))
        names = {"Qcur": Q_HEADS, "Kcur": KV_HEADS, "Vcur": KV_HEADS}
        found: dict[str, Array] = {}
        for length in LENGTHS:
            wanted = [f"{name}-{layer}" for layer in LAYERS for name in (*names, "kqv_out")]
            seen = ctx.model.capture(ids[:length], wanted, kv="f16")
            for layer in LAYERS:
                for name, heads in names.items():  # the last one of a name is the rotated one
                    rows = seen[f"{name}-{layer}"][-1].reshape(length, heads, HEAD_DIM)
                    found[f"{name}-{layer} {length}"] = rows
                found[f"out-{layer} {length}"] = seen[f"kqv_out-{layer}"][-1].reshape(length, -1)
        return found

    return ctx.cached("texts", make)


def _case(ctx: Context, layer: int, length: int) -> tuple[Array, Array, Array, Array]:
    seen = _captured(ctx)
    q, k, v, out = (seen[f"{name}-{layer} {length}"] for name in ("Qcur", "Kcur", "Vcur", "out"))
    return q, k, v, out


def _softmax(z: Array, axis: int) -> Array:
    powers = np.exp(z - z.max(axis=axis, keepdims=True))
    total: Array = powers / powers.sum(axis=axis, keepdims=True)
    return total


def _seen(rows: int, keys: int, first: int) -> Array:
    """Which keys each query row may read, when row 0 sits at position `first`."""
    return np.arange(keys)[None, :] <= first + np.arange(rows)[:, None]


def _attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    interleave: bool = False,
    mask: str = "causal",
    axis: int = -1,
) -> Array:
    """Attention in float64, [N, heads × head_dim]; the arguments make the typical mistakes.

    mask: causal, none, strict (without the token itself), late (after the softmax), top (row 0 at place 0).
    """
    rows, heads, dim = q.shape
    group = heads // k.shape[1]
    pick = np.arange(heads) % k.shape[1] if interleave else np.arange(heads) // group
    scores = np.einsum("nhd,thd->hnt", q.astype(np.float64), k[:, pick].astype(np.float64))
    scores *= scale if scale is not None else dim**-0.5
    first = {"strict": len(k) - rows - 1, "top": 0}.get(mask, len(k) - rows)
    seen = _seen(rows, len(k), first) | (mask == "none")
    masked = scores if mask == "late" else np.where(seen, scores, -1e30)
    weights = _softmax(masked, axis) * (seen if mask == "late" else 1.0)
    mixed = np.einsum("hnt,thd->nhd", weights, v[:, pick].astype(np.float64))
    out: Array = mixed.reshape(rows, -1)
    return out


def _name_mistakes(ctx: Context, answer: Any, q: Array, k: Array, v: Array) -> None:
    dim, shape = q.shape[-1], q.shape
    group = shape[1] // k.shape[1]

    def variant(**twist: Any) -> Any:
        return lambda: close(answer, _attention(q, k, v, **twist))

    def transposed() -> bool:
        heads = _attention(q, k, v).reshape(shape)
        return close(answer, heads.transpose(0, 2, 1).reshape(shape[0], -1)) or close(
            answer, heads.transpose(1, 0, 2).reshape(shape[0], -1)
        )

    mistakes = (
        (
            "flat",
            variant(scale=1 / dim),
            f"Scores are {dim**0.5:.3g}× too flat: divide by √{dim}, not by {dim}.",
        ),
        ("unscaled", variant(scale=1.0), f"You forgot 1/√{dim}."),
        (
            "h % 3",
            variant(interleave=True),
            f"Query heads 0 to {group - 1} share KV head 0: use h // {group}, not h % {k.shape[1]}.",
        ),
        (
            "no mask",
            variant(mask="none"),
            "An earlier token looked at a later one: the causal mask is missing.",
        ),
        ("strict", variant(mask="strict"), "A token may also read itself: mask only what comes after it."),
        (
            "late mask",
            variant(mask="late"),
            "You masked after the softmax, so rows no longer sum to 1. Put −∞ into the scores before it.",
        ),
        (
            "mask from the top",
            variant(mask="top"),
            "The N query rows are the newest tokens: row 0 sits at position T − N, not at 0.",
        ),
        (
            "columns",
            variant(axis=1),
            "Each *row* must sum to 1: the softmax runs over the keys, not the queries.",
        ),
        ("transposed", transposed, "The heads stand side by side: head 0 is columns 0 to head_dim − 1."),
    )
    for ident, when, message in mistakes:
        ctx.misconception(ident, when, message)


def _expect(ctx: Context, q: Array, k: Array, v: Array, out: Array, tolerance: float, where: str) -> None:
    answer = ctx.guest.call("attention", q, k, v)
    _name_mistakes(ctx, answer, q, k, v)
    ctx.expect_close(answer, out, max_relative=tolerance, where=where)


@check(
    "attention",
    "kqv_out of llama.cpp in layers 0, 10 and 29 for 12, 60 and 1 tokens, relative error up to 1e-2",
)
def whole_texts(ctx: Context) -> None:
    for length in (12, 60, 1):
        for layer in LAYERS:
            q, k, v, out = _case(ctx, layer, length)
            _expect(ctx, q, k, v, out, ROUNDED, f"layer {layer}, T = {length}")


@check(
    "newest rows only", "1 and 7 query rows over 60 keys, against the last rows of kqv_out, error up to 1e-2"
)
def newest_rows(ctx: Context) -> None:
    for rows in (1, 7):
        q, k, v, out = _case(ctx, 10, 60)
        _expect(ctx, q[-rows:], k, v, out[-rows:], ROUNDED, f"N = {rows}, T = 60")


@check("other shapes", "random heads, groups and sizes, against float64, relative error up to 1e-5")
def other_shapes(ctx: Context) -> None:
    for kv_heads, group in ((2, 2), (1, 4), (3, 1)):
        rows, dim = int(ctx.rng.integers(3, 9)), int(ctx.rng.choice([4, 8, 16]))
        keys = rows + int(ctx.rng.integers(0, 4))
        q = ctx.rng.standard_normal((rows, kv_heads * group, dim)).astype(np.float32)
        k, v = ctx.rng.standard_normal((2, keys, kv_heads, dim)).astype(np.float32)
        where = f"{kv_heads * group} query heads, {kv_heads} KV heads of {dim}, N = {rows}, T = {keys}"
        _expect(ctx, q, k, v, _attention(q, k, v), EXACT, where)


@check("large scores", "scores of many thousands: finite, and equal to float64, relative error up to 1e-3")
def large_scores(ctx: Context) -> None:
    q = (ctx.rng.standard_normal((5, Q_HEADS, HEAD_DIM)) * 800).astype(np.float32)
    q[:, 0] *= 1e-2  # one head with much smaller scores than the others
    k, v = ctx.rng.standard_normal((2, 5, KV_HEADS, HEAD_DIM)).astype(np.float32)
    answer = ctx.guest.call("attention", q, k, v)
    ctx.misconception(
        "overflow",
        lambda: not np.isfinite(np.asarray(answer, dtype=float)).all(),
        "np.exp overflows, or all of a row vanished: subtract each row's own largest score first.",
    )
    _name_mistakes(ctx, answer, q, k, v)
    ctx.expect_close(answer, _attention(q, k, v), max_relative=1e-3, where="attention of large scores")


@check("arguments stay as they are", "Q, K and V after the call, against what was passed")
def unchanged(ctx: Context) -> None:
    q, k, v, _ = _case(ctx, 0, 12)
    sent = [ctx.guest.put(array) for array in (q, k, v)]
    ctx.guest.call("attention", *sent)
    for name, handle, array in zip("QKV", sent, (q, k, v), strict=True):
        after = np.asarray(handle.value())
        same = after.shape == array.shape and bool((after == array).all())
        ctx.expect(same, f"{name} was changed in place. The cache still needs it.", where=name)
