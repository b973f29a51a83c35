"""Checks of `kv-cache`: rows of real attention, rollback, and a counted decode loop in exact mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutor.grading.kit import Context, Handle, Refused, check, close

Array = np.ndarray[Any, Any]
Rows = tuple[Array, Array]  # keys and values, [tokens, 3, 64] each

LAYER = 10
Q_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
# llama.cpp rounds q, k, v and the weights to f16 inside attention: up to 0.005 was measured in this layer
TOLERANCE = 0.01

TEXTS = (
    "The lighthouse keeper wrote one line a day: the wind, the waves, and the ships that passed.",
    "Bread needs flour, water, salt and time. The baker mixes them in the evening and waits until morning.",
    "A bicycle stays upright because the rider steers a little into every fall, without thinking about it.",
    "def area(width, height):\n    return width * height\n\nprint(area(3, 4))\nprint(area(10, 2.5))",
    "In winter the lake freezes from the top, and the fish live on in the dark water under the ice.",
    "Maps leave things out on purpose. A map with every stone on it would be as large as the land itself.",
)
# one beginning, two ways to go on
FORKS = (
    (
        "The train to the coast leaves at",
        " seven, and the platform is still dark.",
        " noon from the old station.",
    ),
    (
        "My grandmother kept her recipes in",
        " a tin box under the stairs of the house.",
        " her head, all of them.",
    ),
    (
        "The first computer in our school was",
        " as loud as a vacuum cleaner.",
        " a gift, and nobody could use it.",
    ),
    (
        "To repair the clock you have to",
        " take out eleven screws, one by one.",
        " stop it first and then wait.",
    ),
)
PROMPTS = (
    "Once upon a time, in a village by the sea,",
    "The three largest planets of the solar system are",
    "Here is a short list of tools for a garden:",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Water freezes at zero degrees, and it boils at",
    "1, 2, 3, 4, 5, 6,",
    "The letter began with the words: Dear friend,",
)


class Captured:
    """Queries, keys, values and attention output of one layer for a text; one row a token."""

    def __init__(self, q: Array, k: Array, v: Array, out: Array) -> None:
        self.q, self.k, self.v, self.out = q, k, v, out


def captured(ctx: Context, key: str, ids: list[int]) -> Captured:
    names = [f"{part}-{LAYER}" for part in ("Qcur", "Kcur", "Vcur", "kqv_out")]

    def make() -> list[Array]:
        seen = ctx.model.capture(ids, names)
        heads = (Q_HEADS, KV_HEADS, KV_HEADS)
        rows = [seen[name][-1].reshape(-1, n, HEAD_DIM) for name, n in zip(names, heads, strict=False)]
        return [*rows, seen[names[3]][-1].reshape(len(ids), -1)]

    return Captured(*ctx.cached(key, make))


def attention(q: Array, k: Array, v: Array, scale: float = 8.0, interleave: bool = False) -> Array:
    """One row: q [9, 64] over k, v [tokens, 3, 64]. `interleave`: the wrong pairing h % 3."""
    group = Q_HEADS // KV_HEADS
    wide = [np.tile(x, (1, group, 1)) if interleave else x.repeat(group, axis=1) for x in (k, v)]
    scores = np.einsum("hd,thd->ht", q, wide[0]) / scale
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("ht,thd->hd", weights, wide[1]).reshape(-1)


class Row:
    """The row that is being looked at, for the misconceptions: set before each comparison."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.q = self.k = self.v = np.zeros(0)

    def is_attention(self, k: Array, v: Array, **twist: Any) -> bool:
        return close(self.answer, attention(self.q, k, v, **twist))


def name_attention_mistakes(ctx: Context, row: Row) -> None:
    """Mistakes inside one row, whatever the cache holds."""
    mistakes = {
        "newest token missing": (
            lambda: row.is_attention(row.k[:-1], row.v[:-1]),
            "The newest token cannot see itself: its own key and value belong to the row as well.",
        ),
        "only the newest token": (
            lambda: row.is_attention(row.k[-1:], row.v[-1:]),
            "Only the newest token was attended. Keep the keys and values of all earlier tokens.",
        ),
        "h % 3": (
            lambda: row.is_attention(row.k, row.v, interleave=True),
            "Query heads 0, 1, 2 share KV head 0: use h // 3, not h % 3.",
        ),
        "not scaled": (
            lambda: row.is_attention(row.k, row.v, scale=1.0),
            "You forgot 1/√64: divide the scores by 8 before the softmax.",
        ),
        "scaled twice": (
            lambda: row.is_attention(row.k, row.v, scale=64.0),
            "Scores are 8× too flat: divide by √64 = 8, not by 64.",
        ),
    }
    for ident, (when, message) in mistakes.items():
        ctx.misconception(ident, when, message)


def feed(
    ctx: Context, cache: Handle, row: Row, held: tuple[Array, Array], text: Captured, start: int
) -> None:
    """Append and attend rows start … of `text`; `held` are the keys and values that the cache should hold."""
    for t in range(start, len(text.q)):
        held = (np.concatenate([held[0], text.k[t : t + 1]]), np.concatenate([held[1], text.v[t : t + 1]]))
        cache.call("append", text.k[t], text.v[t])
        row.q, (row.k, row.v) = text.q[t], held
        row.answer = cache.call("attend", text.q[t])
        ctx.expect_close(
            row.answer,
            text.out[t],
            atol=TOLERANCE,
            where=f"row {t}",
            note=f"Row {t} is the attention of token {t} over tokens 0 to {t}.",
        )


NOTHING = (np.zeros((0, KV_HEADS, HEAD_DIM), np.float32), np.zeros((0, KV_HEADS, HEAD_DIM), np.float32))


@check("attention row by row", f"rows equal the model's own kqv_out of layer {LAYER}, within {TOLERANCE}")
def row_by_row(ctx: Context) -> None:
    row = Row()
    name_attention_mistakes(ctx, row)
    feed(ctx, ctx.guest.new("KVCache"), row, NOTHING, whole_text(ctx), 0)


def whole_text(ctx: Context) -> Captured:
    """One of TEXTS; the same one in all checks of a run, so that it is computed once."""
    chosen = ctx.seed % len(TEXTS)
    return captured(ctx, f"text {chosen}", ctx.model.tokenize(TEXTS[chosen]))


@check("large scores", "scores of many hundreds: finite, and equal to attention in 64-bit floats within 0.01")
def large_scores(ctx: Context) -> None:
    k, v = ctx.rng.standard_normal((2, 6, KV_HEADS, HEAD_DIM)).astype(np.float32)
    q = (ctx.rng.standard_normal((Q_HEADS, HEAD_DIM)) * 500).astype(np.float32)
    cache = ctx.guest.new("KVCache")
    for key, value in zip(k, v, strict=True):
        cache.call("append", key, value)
    answer = cache.call("attend", q)
    ctx.misconception(
        "overflow",
        lambda: not np.isfinite(np.asarray(answer, dtype=float)).all(),
        "np.exp overflows at large scores: subtract the largest score of each head first.",
    )
    expected = attention(q.astype(float), k.astype(float), v.astype(float))
    ctx.expect_close(answer, expected, atol=TOLERANCE, where="attend(q)")


@check(
    "truncate, then another text",
    "after truncate(n) and another suffix, rows equal a fresh run over the other text, within 0.01",
)
def truncate_and_continue(ctx: Context) -> None:
    kept, first, second = fork(ctx)
    cache = ctx.guest.new("KVCache")
    for key, value in zip(first.k, first.v, strict=True):
        cache.call("append", key, value)
    cache.call("truncate", len(first.k))  # all of it: nothing may get lost
    cache.call("truncate", kept)
    row = Row()
    name_attention_mistakes(ctx, row)
    name_rollback_mistakes(ctx, row, first, kept)
    feed(ctx, cache, row, (first.k[:kept], first.v[:kept]), second, kept)


@check("truncate(0), then regrow", "after other rows and truncate(0), rows equal kqv_out again, within 0.01")
def regrow(ctx: Context) -> None:
    text = whole_text(ctx)
    abandoned = Captured(text.q[::-1], text.k[::-1], text.v[::-1], text.out[::-1])
    cache = ctx.guest.new("KVCache")
    for key, value in zip(abandoned.k, abandoned.v, strict=True):
        cache.call("append", key, value)
    cache.call("truncate", 0)
    row = Row()
    name_attention_mistakes(ctx, row)
    name_rollback_mistakes(ctx, row, abandoned, 0)
    feed(ctx, cache, row, NOTHING, text, 0)


def fork(ctx: Context) -> tuple[int, Captured, Captured]:
    """Two real texts with a common beginning of `kept` tokens."""
    chosen = int(ctx.rng.integers(len(FORKS)))
    beginning, one, other = FORKS[chosen]
    shared = ctx.model.tokenize(beginning)
    suffixes = (one, other)
    texts = [
        captured(ctx, f"fork {chosen} {i}", shared + ctx.model.tokenize(suffix))
        for i, suffix in enumerate(suffixes)
    ]
    order = ctx.rng.permutation(2)
    return len(shared), texts[order[0]], texts[order[1]]


def name_rollback_mistakes(ctx: Context, row: Row, first: Captured, kept: int) -> None:
    """Mistakes about what is left after truncate(kept) of a cache that held all of `first`."""

    def row_over(before: int | None, stale_tail: bool = False) -> bool:
        """The row over first[:before], then what came after the rollback, then what `first` left behind."""
        parts = [
            (old[:before], now[kept:], old[len(now) :] if stale_tail else old[:0])
            for old, now in ((first.k, row.k), (first.v, row.v))
        ]
        return row.is_attention(*(np.concatenate(part) for part in parts))

    stale = (
        "Stale keys of the abandoned suffix are still attended: "
        "truncate has to forget them, not only move a counter."
    )
    ctx.misconception("stale suffix", lambda: row_over(None), stale)
    ctx.misconception("stale tail", lambda: len(row.k) < len(first.k) and row_over(kept, True), stale)
    ctx.misconception(
        "one too many kept",
        lambda: row_over(kept + 1),
        f"truncate({kept}) kept position {kept}. It keeps the first {kept} tokens, positions below {kept}.",
    )
    if kept == 0:
        return
    ctx.misconception(
        "one too many dropped",
        lambda: row_over(kept - 1),
        f"truncate({kept}) dropped one token too many: positions 0 to {kept - 1} stay.",
    )
    ctx.misconception(
        "all dropped",
        lambda: row_over(0),
        f"truncate({kept}) dropped everything. The first {kept} tokens stay.",
    )


class Engine:
    """What `generate` gets: the real model with one slot, which counts and insists on positions."""

    def __init__(self, session: Any, prompt: list[int], n: int) -> None:
        self._session = session
        self._limit = len(prompt) + n + 8
        self.submitted = 0
        self.restarted = self.skipped = False

    def decode(self, tokens: Any, positions: Any) -> Array:
        ids, places = whole_numbers(tokens, "tokens"), whole_numbers(positions, "positions")
        if len(ids) != len(places) or not ids:
            raise Refused(
                f"decode got {len(ids)} tokens and {len(places)} positions: as many of each, at least one."
            )
        last = self._session.pos_max(0)
        for expected, place in enumerate(places, start=last + 1):
            if place != expected:
                self.restarted = last >= 0 and places[0] == 0
                self.skipped = place == expected + 1
                raise Refused(f"decode → −1: position {place} after pos_max {expected - 1}.")
        if self.submitted + len(ids) > self._limit:
            raise Refused(f"{self.submitted + len(ids)} tokens submitted: far more than needed.")
        want = [False] * (len(ids) - 1) + [True]
        logits: Array = self._session.decode(ids, places, [0] * len(ids), want)[-1]
        self.submitted += len(ids)
        return logits


def whole_numbers(values: Any, name: str) -> list[int]:
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(listed, (list, tuple)) or any(type(value) is not int for value in listed):
        raise Refused(f"decode: {name} is a list of int, one for each token.")
    return list(listed)


def run_generate(ctx: Context, prompt: list[int], n: int, key: str) -> None:
    """One counted run against the model's own greedy text."""
    expected = ctx.cached(f"greedy {key} {n}", lambda: ctx.model.greedy(prompt, n, stop_at_eog=False))
    total, again = len(prompt) + n - 1, n * len(prompt) + n * (n - 1) // 2
    with ctx.model.session(256) as session:
        engine = Engine(session, prompt, n)
        ctx.misconception(
            "prompt resubmitted",
            lambda: engine.restarted,
            "You submit the whole text again at each step. The cache already holds it: "
            f"that way it is {again:,} tokens submitted, {total} expected.",
        )
        ctx.misconception(
            "one position too far",
            lambda: engine.skipped,
            f"The prompt fills positions 0 to {len(prompt) - 1}, so the first new token goes to position "
            f"{len(prompt)}: the next position is the number of tokens submitted so far.",
        )
        answer = ctx.guest.call("generate", ctx.remote(engine, ["decode"], label="engine"), list(prompt), n)
    ids = answer.tolist() if isinstance(answer, np.ndarray) else answer
    ctx.misconception(
        "prompt returned",
        lambda: list(ids) == prompt + expected,
        "You returned the prompt as well: return the new tokens only.",
    )
    ctx.misconception(
        "last token submitted",
        lambda: engine.submitted == total + 1,
        "You submitted the last token too. Nobody needs the logits after it.",
    )
    ctx.expect_equal(ids, expected, where="ids", note=f"Prompt: {key}, n = {n}.")
    ctx.expect(
        engine.submitted == total,
        f"{engine.submitted:,} tokens submitted, {total} expected (P = {len(prompt)}, N = {n}).",
        expected=total,
        actual=engine.submitted,
        where="submitted tokens",
    )


@check("generate", "ids equal llama.cpp's own greedy run, exact mode; exactly P + N − 1 tokens submitted")
def generate(ctx: Context) -> None:
    for chosen in ctx.rng.choice(len(PROMPTS), size=2, replace=False):
        text = PROMPTS[int(chosen)]
        run_generate(ctx, ctx.model.tokenize(text), int(ctx.rng.integers(5, 9)), repr(text))


@check("generate: the smallest cases", "a prompt of one token, and n = 1, against the same")
def smallest(ctx: Context) -> None:
    text = PROMPTS[int(ctx.rng.integers(len(PROMPTS)))]
    ids = ctx.model.tokenize(text)
    run_generate(ctx, ids[:1], 3, f"the first token of {text!r}")
    run_generate(ctx, ids[:5], 1, f"the first 5 tokens of {text!r}")
