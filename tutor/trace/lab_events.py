"""What happens in labs that are not a serving engine; `tutor.trace.events` has the rest and the union."""

from __future__ import annotations

from tutor.trace.base import Event


class StageEntered(Event, frozen=True):
    """A named stage of a pipeline began (template, tokenize, prefill, decode, detokenize, stop)."""

    stage: str
    detail: str


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


class Noted(Event, frozen=True):
    """A sentence of the lab itself: what to look at now."""

    text: str
