"""Run the two phases of a request, and take its times apart."""

from typing import NamedTuple


class Phases(NamedTuple):
    """The times of one request. Seconds, or tokens per second; None where there is no such time.

    queue: from arrival until the first pass begins.
    ttft: from arrival until the first output token; the wait in the queue is part of it.
    prefill_tps: prompt tokens that were computed, per second from the first pass to the first token.
    tpot: time per output token after the first one, as a mean.
    itl: the gaps between output tokens, in order; one less than there are tokens.
    decode_tps: output tokens after the first one, per second.
    e2e: from arrival until the last output token.
    """

    queue: float
    ttft: float | None
    prefill_tps: float | None
    tpot: float | None
    itl: list[float]
    decode_tps: float | None
    e2e: float | None


def run(engine, prompt, n_new, n_batch):
    """Prefill `prompt` in passes of up to `n_batch` tokens, then decode until `n_new` tokens are written.

    engine.decode(ids, positions, want) runs one pass over `ids` at `positions` (both lists of int), and
        keeps their K and V. `want` is a list of bool: where it is True, logits are computed.
        Returns a list: the likeliest next id for each entry with want, None for the others.
    prompt: list of 1 or more ids; n_new: 1 or more; n_batch: 1 or more, the most tokens of one pass

    Make as few passes as possible, and ask for logits only where you use them.
    Returns (tokens, trace): the n_new ids, and (phase, number of tokens, number of wanted logits) for each
    pass, in order; phase is "prefill" or "decode".
    """
    raise NotImplementedError("prefill in chunks, then one token a pass")


def split(arrived, started, chunks, num_prompt, num_cached):
    """Take the times of one request apart.

    arrived, started: seconds; when the request came in, and when its first pass began
    chunks: list of (seconds, count) in order: when output tokens were delivered, and how many at once.
        The first chunk has one token. Empty if the request failed: then only `queue` and `itl` are known.
    num_prompt, num_cached: prompt tokens, and how many of them were in the KV cache already

    Tokens of one chunk share its time, so the gaps between them are 0.
    With one output token there is no tpot and no decode_tps. Returns Phases.
    """
    raise NotImplementedError("count tokens, not chunks")
