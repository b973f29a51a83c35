"""What happens in labs that are not a serving engine; `tutor.trace.events` has the rest and the union."""

from __future__ import annotations

from tutor.trace.base import Event


class StageEntered(Event, frozen=True):
    """A named stage of a pipeline (template, tokenize, prefill, decode, detokenize, stop) and what it did.

    `duration`: seconds that it took; None where nobody measured it.
    """

    stage: str
    detail: str
    duration: float | None = None


class TextTokenized(Event, frozen=True):
    """`pieces` are the tokens' bytes in hex, since a token may be half a character."""

    text: str
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]


class PiecesMerged(Event, frozen=True):
    """One BPE merge: all current pieces of the word in hex, and the pair that was just joined."""

    pieces: tuple[str, ...]
    pair: tuple[str, str]
    rank: int


class LogitsComputed(Event, frozen=True):
    """The most probable next tokens after `position`; `entropy` in bits."""

    position: int
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    probabilities: tuple[float, ...]
    entropy: float


class LayerComputed(Event, frozen=True):
    """What a layer would predict if it were the last one (logit lens), and its hidden state's norm."""

    layer: int
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    probabilities: tuple[float, ...]
    norm: float


class TensorSeen(Event, frozen=True):
    """A node of llama.cpp's compute graph: its name, what it computes, and its shape."""

    name: str
    role: str
    shape: tuple[int, ...]


class TokensComputed(Event, frozen=True):
    """A forward pass of one lane: how many positions it had to run, and how long that took."""

    lane: str
    num_tokens: int
    total_tokens: int
    duration: float
    cache_tokens: int
    text: str = ""


class CacheDropped(Event, frozen=True):
    """A lane's KV entries from `position` on became invalid and were removed."""

    lane: str
    position: int
    num_dropped: int
    reason: str


class TokenTimed(Event, frozen=True):
    """One new token of one lane, timed when the text had about `position` tokens, this one included.

    `num_tokens` ran for it, in `duration` seconds.
    """

    lane: str
    position: int
    num_tokens: int
    duration: float


class CacheFilled(Event, frozen=True):
    """A cache of one type of K and V holds tokens in `num_tokens` of its `num_cells`.

    `formula_bytes`: K and V of these tokens by the formula; `state_bytes`: what llama.cpp writes when it
    saves the sequence; `buffer_bytes`: what it allocated for all cells.
    """

    kv_type: str
    num_tokens: int
    num_cells: int
    state_bytes: int
    formula_bytes: int
    buffer_bytes: int


class BufferMeasured(Event, frozen=True):
    """The KV buffer that llama.cpp allocated for a context, beside the formula's figure."""

    label: str
    n_ctx: int
    n_seq: int
    type_k: str
    type_v: str
    num_cells: int
    measured_bytes: int
    formula_bytes: int


class PassRun(Event, frozen=True):
    """One forward pass of one request. `phase`: prefill or decode; `num_tokens` rows were computed and
    `num_outputs` rows of logits asked for; `start` is the seconds that its run's passes took before it.
    """

    run: str
    phase: str
    num_tokens: int
    num_outputs: int
    start: float
    duration: float


class FrameWritten(Event, frozen=True):
    """What goes over the wire in one dialect. `call` counts the requests; `way`: sent or received."""

    call: int
    dialect: str
    way: str
    text: str


class TimingsRead(Event, frozen=True):
    """Timing fields of an answer as a dialect reports them, and what follows; None: it does not say."""

    call: int
    dialect: str
    fields: tuple[tuple[str, float], ...]
    prefill_tps: float | None
    decode_tps: float | None
    ttft_ms: float | None
    context_tokens: int | None


class AttentionRead(Event, frozen=True):
    """One row of attention in one layer: what the token at `position` took from each position, for each head.

    `weights` [query heads][positions] are the model's own probabilities, positions after the token included.
    `num_queries` rows of Q were computed by the pass that gave this row; `head` is the one to look at.
    """

    layer: int
    head: int
    num_kv_heads: int
    position: int
    num_queries: int
    weights: tuple[tuple[float, ...], ...]


class DistributionShaped(Event, frozen=True):
    """The next token's distribution after one stage of sampling (model, penalty, top-k, …, temperature).

    `num_left` tokens have a probability above 0, the likeliest has `top`; `kept` is the share of the stage
    before that they held; `entropy` in bits. The listed tokens are the same at each stage; 0.0 means dropped.
    """

    stage: str
    setting: str
    num_left: int
    kept: float
    top: float
    entropy: float
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    probabilities: tuple[float, ...]


class TokensDrawn(Event, frozen=True):
    """`counts`: how many of `num_draws` draws gave each token that the distribution's event lists."""

    num_draws: int
    counts: tuple[int, ...]


class StreamGrew(Event, frozen=True):
    """A sampled text got a token: its probability after the filters, and its rank (from 1) in the model's own
    order; `repeats` of the last tokens are a copy of those before them (a loop), 0 for none.
    """

    stream: str
    token_id: int
    text: str
    probability: float
    rank: int
    repeats: int


class TablesCompared(Event, frozen=True):
    """A check compared what the learner's `call` did with what is right; `invariant` in words.

    `rows` holds (what, expected, got) as text; `holds`: whether the invariant held.
    """

    call: str
    invariant: str
    rows: tuple[tuple[str, str, str], ...]
    holds: bool


class Noted(Event, frozen=True):
    """A sentence of the lab itself: what to look at now."""

    text: str
