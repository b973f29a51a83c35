"""Checks of `filter_probs` and `draw` on the model's own logits, against float64 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tutor.grading.kit import Context, check, close

Array = np.ndarray[Any, Any]

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "They looked at the sky and",
    "def fibonacci(n):\n    return",
    "My favourite food is",
    "1, 2, 3, 4,",
)
ROWS = 3
BAND = 1e-4  # of probability: where float32 and float64 may put the last token of top-p differently
CLOSE = 1e-4
TEXT_TOKENS = 12
OFF = (0, 1.0, 0.0)  # top_k, top_p, min_p
Settings = tuple[float, int, float, float]  # temperature, top_k, top_p, min_p


class Row:
    """Logits after a prompt, float32 [49152]; `sent` is the guest's copy, `order` the likeliest first."""

    def __init__(self, ctx: Context, logits: Array, prompt: str = "", order: Array | None = None) -> None:
        self.prompt, self.z = prompt, logits.astype(np.float64)
        self.order = descending(logits) if order is None else order
        self.sent = ctx.guest.put(logits)
        self._sums: dict[int, Array] = {}  # by top_k: the same for all values of top_p

    def sums(self, top_k: int) -> Array:
        """Running sums of the probabilities after top-k."""
        if top_k not in self._sums:
            self._sums[top_k] = np.cumsum(_softmax(self.z[self.order[: top_k or None]]))
        return self._sums[top_k]


def _rows(ctx: Context) -> list[Row]:
    def make() -> list[Array]:
        return [np.array(ctx.model.next_logits(ctx.model.tokenize(prompt))) for prompt in chosen]

    picked = np.random.default_rng(ctx.seed).choice(len(PROMPTS), ROWS, replace=False)
    chosen = [PROMPTS[int(i)] for i in picked]
    rows = ctx.cached("rows", make)
    orders = ctx.cached("orders", lambda: [descending(row) for row in rows])
    return [Row(ctx, *each) for each in zip(rows, chosen, orders, strict=True)]


def descending(logits: Array) -> Array:
    """The token ids, the likeliest first; of equals the lowest id first."""
    order: Array = np.argsort(-logits.astype(np.float64), kind="stable")
    return order


def _softmax(z: Array) -> Array:
    powers = np.exp(z - z.max())
    total: Array = powers / powers.sum()
    return total


def _filter(row: Row, settings: Settings, twist: str = "", count: int | None = None) -> Array:
    """The reference, float64 [V]; `twist` makes a typical mistake, `count` fixes what top-p keeps."""
    temperature, top_k, top_p, min_p = settings
    z, keep = row.z, row.order
    if twist == "temperature first" and temperature > 0:
        z, temperature = z / temperature, 1.0
    if twist == "unsorted":
        keep = np.arange(len(z))
    if top_k > 0:
        keep = keep[:top_k]
    if twist == "min-p first" and min_p > 0:
        keep = keep[z[keep] >= z[keep[0]] + np.log(min_p)]
    if top_p < 1.0:
        sums = row.sums(top_k)
        if twist not in ("", "no crossing token"):
            sums = np.cumsum(_softmax(z)[keep] if twist == "top-p of all" else _softmax(z[keep]))
        crossing = int(np.searchsorted(sums, top_p)) + (twist != "no crossing token")
        keep = keep[: crossing if count is None else count]
    if min_p > 0 and len(keep):
        shares = _softmax(z[keep])
        keep = keep[shares >= (min_p if twist == "absolute" else min_p * shares.max())]
    probs = np.zeros(len(z))
    if temperature == 0:
        probs[keep[:1]] = 1.0
    elif len(keep):
        scale = temperature if twist == "multiplied" else 1 / temperature
        probs[keep] = _softmax(z[keep] * scale)
    if twist == "not renormalised":
        probs = np.where(probs > 0, _softmax(z), 0.0)
    return probs


def _counts(sums: Array, top_p: float) -> tuple[int, int]:
    """The fewest and the most tokens that top-p may keep when its threshold moves by BAND."""
    low, high = (min(int(np.searchsorted(sums, top_p + move)) + 1, len(sums)) for move in (-BAND, BAND))
    return low, high


MISTAKES = (
    ("unsorted", "Sort descending first, then add up: the set has to hold the likeliest tokens."),
    ("multiplied", "Higher T made it *more* peaked: divide the logits by T, do not multiply."),
    ("min-p first", "min-p ran before top-p. The order is top-k, top-p, min-p, temperature."),
    ("absolute", "min_p is relative to the top probability: the threshold is min_p times the largest."),
    (
        "temperature first",
        "You scaled by T before the filters. In llama.cpp's order they see temperature 1, and T acts last.",
    ),
    (
        "top-p of all",
        "After top-k the k tokens are the whole: top-p counts their probabilities renormalised.",
    ),
)


class Answer:
    """What filter_probs gave for the settings; None while it has not, or when it raised."""

    def __init__(self, row: Row, settings: Settings) -> None:
        self.row, self.settings = row, settings
        self.value: Any = None

    def probs(self) -> Array:
        return np.zeros(0) if self.value is None else np.asarray(self.value, dtype=float)

    def is_twisted(self, twist: str) -> bool:
        """Does it have this mistake? One that leaves no token makes most code raise."""
        wrong = _filter(self.row, self.settings, twist)
        return not wrong.any() if self.value is None else close(self.value, wrong)

    def too_few(self) -> str:
        kept, top_p = int((_filter(self.row, self.settings, "no crossing token") > 0).sum()), self.settings[2]
        tokens = "1 token" if kept == 1 else f"{kept} tokens"
        return f"At p = {top_p:.3g} you kept {tokens}, one too few: the token whose share crosses p stays."


def _name_mistakes(ctx: Context, answer: Answer) -> None:
    """Declared before the call, so that they also explain why the learner's code raised."""
    temperature, *others = answer.settings
    ctx.misconception("no crossing token", lambda: answer.is_twisted("no crossing token"), answer.too_few)
    mass = "Kept mass is below 1. Divide by it: what is left must sum to 1."
    ctx.misconception(
        "not renormalised",
        lambda: answer.probs().sum() < 1 - 1e-3 and answer.is_twisted("not renormalised"),
        mass,
    )
    flat = (1.0, *others)
    ctx.misconception(
        "no temperature",
        lambda: temperature not in (0.0, 1.0) and close(answer.value, _filter(answer.row, flat)),
        "The temperature changes nothing in your answer.",
    )
    for twist, message in MISTAKES:
        ctx.misconception(twist, lambda twist=twist: answer.is_twisted(twist), message)


def _expect(ctx: Context, row: Row, settings: Settings) -> None:
    """One call of filter_probs against the reference; inside BAND top-p may keep a token more or less."""
    answer = Answer(row, settings)
    _name_mistakes(ctx, answer)
    answer.value = ctx.guest.call("filter_probs", row.sent, *settings)
    names = ("temperature", "top_k", "top_p", "min_p")
    where = f"{row.prompt!r}, " + ", ".join(f"{n} {v:.4g}" for n, v in zip(names, settings, strict=True))
    size, shape = np.shape(answer.value), row.z.shape
    ctx.expect(size == shape, f"filter_probs returned shape {size}, expected {shape}.", where=where)
    kept, count = int((answer.probs() > 0).sum()), None
    _, top_k, top_p, min_p = settings
    if top_p < 1 and min_p == 0:
        low, high = _counts(row.sums(top_k), top_p)
        count = kept if low <= kept <= high else None
    expected = _filter(row, settings, count=count)
    wanted = int((expected > 0).sum())
    if settings[1:] != OFF:  # without a filter a tiny probability may well be rounded to 0
        ctx.expect(kept == wanted, f"{kept:,} tokens survived, expected {wanted:,}.", where=where)
    ctx.expect_close(answer.value, expected, max_relative=CLOSE, where=where)


@check("temperature", "real logits at four temperatures, all filters off, against float64, error up to 1e-4")
def temperature(ctx: Context) -> None:
    for row in _rows(ctx):
        for t in (1.0, 0.3, 1.6, 3.0):
            _expect(ctx, row, (t, *OFF))


@check("top-k", "real logits, and equals at the edge, against float64: survivors and their probabilities")
def top_k(ctx: Context) -> None:
    for row in _rows(ctx):
        for k in (1, int(ctx.rng.integers(2, 400)), len(row.z) + 7):
            _expect(ctx, row, (1.0, k, 1.0, 0.0))
    tied = np.array([1.0, 3.0, 2.0, 2.0, 2.0, 0.0], np.float32)
    answer = ctx.guest.call("filter_probs", tied, 1.0, 3, 1.0, 0.0)
    survivors = [i for i, p in enumerate(np.asarray(answer).tolist()) if p > 0]
    note = "Of equals the lowest ids stay."
    ctx.expect_equal(survivors, [1, 2, 3], where="top_k 3 of [1, 3, 2, 2, 2, 0]", note=note)
    many = ctx.rng.integers(0, 3, 400).astype(np.float32)  # NumPy sorts short arrays stably in any case
    answer = ctx.guest.call("filter_probs", many, 1.0, 200, 1.0, 0.0)
    survivors = np.flatnonzero(np.asarray(answer)).tolist()
    wanted = sorted(descending(many)[:200].tolist())
    ctx.expect_equal(survivors, wanted, where="top_k 200 of 400 logits that are 0, 1 or 2", note=note)


@check("top-p", "8 values of p on 3 real rows, the smallest sufficient set in float64, p within 1e-4")
def top_p(ctx: Context) -> None:
    values = (0.5, *ctx.rng.uniform(0.05, 0.8, 3), *ctx.rng.uniform(0.8, 0.99, 4))
    for row in _rows(ctx):
        for p in values:
            _expect(ctx, row, (1.0, 0, float(p), 0.0))


@check("min-p", "4 values on 3 real rows, against float64: the survivors and their probabilities")
def min_p(ctx: Context) -> None:
    for row in _rows(ctx):
        for m in (0.1, 1.0, *10.0 ** ctx.rng.uniform(-4, -0.5, 2)):
            _expect(ctx, row, (1.0, 0, 1.0, float(m)))


@check("the order", "all filters and a temperature on real rows, in llama.cpp's order, against float64")
def order(ctx: Context) -> None:
    for row in _rows(ctx):
        for t, k, m in ((2.0, 0, 0.0), (0.5, 0, 0.0), (1.0, 6, 0.0), (1.4, 30, 0.04), (0.0, 9, 0.0)):
            _expect(ctx, row, (t, k, _clear_p(ctx, row, k), m))


def _clear_p(ctx: Context, row: Row, top_k: int) -> float:
    """A top_p that lies on no edge, so that there is one right set; 0.5 if the row has none."""
    sums = row.sums(top_k)
    for p in ctx.rng.uniform(0.7, 0.95, 50):
        low, high = _counts(sums, float(p))
        if low == high:
            return float(p)
    return 0.5


@check("edges", "equal maxima at temperature 0, −∞ and huge logits, and a single survivor")
def edges(ctx: Context) -> None:
    inf = np.inf
    cases: tuple[tuple[list[float], Settings, list[float], str], ...] = (
        (
            [1, 4, 4, 2],
            (0.0, 0, 1.0, 0.0),
            [0, 1, 0, 0],
            "At temperature 0 the lowest id wins.",
        ),
        ([-inf, 2, -inf, 2], (1.0, 0, 1.0, 0.0), [0, 0.5, 0, 0.5], "A logit of −∞ has probability 0."),
        ([1e4, -1e4, 9990, 0], (1.0, 0, 0.5, 0.0), [1, 0, 0, 0], "Subtract the largest logit before exp."),
        ([3, 2, 1, 0], (5.0, 1, 1.0, 0.0), [1, 0, 0, 0], "One survivor has probability 1."),
        ([0, 0, 0, 0], (0.7, 0, 1.0, 1.0), [0.25] * 4, "min_p 1 keeps all that equal the largest."),
    )
    for logits, settings, expected, note in cases:
        answer = ctx.guest.call("filter_probs", np.array(logits, np.float32), *settings)
        ctx.expect_close(
            answer, np.array(expected), atol=1e-6, where=f"logits {logits}, {settings}", note=note
        )


def _drawn(probs: Array, u: float) -> int:
    by_chance = np.argsort(-probs, kind="stable")
    sums = np.cumsum(probs[by_chance])
    place = int(np.searchsorted(sums, u, side="right"))
    return int(by_chance[min(place, int((probs > 0).sum()) - 1)])


def _clear_u(ctx: Context, probs: Array) -> float:
    """A random number that rounding cannot put on the other side of an edge."""
    sums = np.cumsum(np.sort(probs)[::-1])
    while True:
        u = float(ctx.rng.random())
        if np.abs(sums - u).min() > 1e-7:
            return u


@check(
    "draw", "60 numbers u on a small distribution; then u exactly on an edge, equals, and rounding at the end"
)
def draw(ctx: Context) -> None:
    probs = np.array([0.0, 0.1, 0.4, 0.1, 0.0, 0.25, 0.15])
    probs = np.roll(probs, int(ctx.rng.integers(0, 7)))
    for u in (0.0, *(_clear_u(ctx, probs) for _ in range(60))):
        _expect_draw(ctx, probs, u)
    even = np.full(64, 1 / 64)  # exact in binary, so the running sums have no rounding
    for place in (1, 17, 40, 63):
        _expect_draw(ctx, even, place / 64)
    tenths = np.concatenate([[0.0], np.full(10, 0.1), [0.0]])  # ten times 0.1 adds up to 1 − 2⁻⁵³
    _expect_draw(ctx, tenths, 1 - 2.0**-53)


def _expect_draw(ctx: Context, probs: Array, u: float) -> None:
    token = ctx.guest.call("draw", probs, u)
    by_id = int(np.searchsorted(np.cumsum(probs), u, side="right"))
    ctx.misconception(
        "by id", lambda: token == by_id, "You walk in the order of ids: the likeliest comes first."
    )
    ctx.misconception("greedy", lambda: token == int(probs.argmax()), "You took the likeliest token. Use u.")
    ctx.misconception(
        "impossible", lambda: probs[token] == 0, "A token with probability 0 was drawn. That must not happen."
    )
    ctx.expect_equal(token, _drawn(probs, u), where=f"draw({probs.tolist()}, {u!r})")


@check("a text, seed-exact", "12 tokens by your filter_probs and draw, against the same numbers u in float64")
def text(ctx: Context) -> None:
    settings: Settings = (0.8, 60, 0.95, 0.02)

    def make() -> dict[str, Any]:
        ids, logits, numbers, tokens = ctx.model.tokenize(PROMPTS[1]), [], [], []
        for _ in range(TEXT_TOKENS):
            logits.append(np.array(ctx.model.next_logits([*ids, *tokens])))
            row = Row(ctx, logits[-1])
            low, high = _counts(row.sums(settings[1]), settings[2])
            choices = [_filter(row, settings, count=count) for count in (None, low, high)]
            drawn: set[int] = set()
            while len(drawn) != 1:  # a number that gives the same token wherever top-p cuts inside BAND
                u = _clear_u(ctx, choices[0])
                drawn = {_drawn(probs, u) for probs in choices}
            numbers.append(u)
            tokens += drawn
        return {"logits": logits, "numbers": numbers, "tokens": tokens}

    seen = ctx.cached("text", make)
    got: list[Any] = []
    for row, u in zip(seen["logits"], seen["numbers"], strict=True):
        probs = ctx.guest.call("filter_probs", row, *settings)
        got.append(ctx.guest.call("draw", probs, u))
        wanted = seen["tokens"][: len(got)]
        said = ctx.model.detokenize(wanted).decode("utf-8", "replace")
        ctx.expect_equal(got, wanted, where=f"token {len(got)}", note=f"The text so far: {said!r}.")
