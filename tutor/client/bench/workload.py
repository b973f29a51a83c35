"""What is sent and when: prompts, answer lengths, times of arrival. The same seed gives the same load."""

from __future__ import annotations

import msgspec
import numpy as np

from tutor.client.bench.lengths import Lengths
from tutor.client.bench.words import WORDS


class Item(msgspec.Struct, frozen=True):
    """One request to send. Lengths in tokens; `at` is seconds after the start (None in a closed loop)."""

    index: int
    prompt: str
    num_input_tokens: int
    max_tokens: int
    at: float | None


class Ratio(msgspec.Struct, frozen=True):
    """Tokens of a prompt of n words on this server: `overhead` (template included) + `per_word` * n."""

    per_word: float = 1.0
    overhead: float = 0.0

    def words(self, tokens: int) -> int:
        """Words that make a prompt of about so many tokens; at least one."""
        return max(1, round((tokens - self.overhead) / self.per_word))


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load that was asked for.

    `arrivals`: "closed" (`concurrency` requests at any time), "poisson" or "constant" (`rate` a second,
    whether the server keeps up or not; `concurrency` caps those in flight when it is given).
    `shared` is the share of each prompt that all prompts have in common, 0 to 1. `duration` ends the sending
    after so many seconds.
    """

    arrivals: str
    requests: int
    rate: float | None = None
    concurrency: int | None = None
    input_tokens: Lengths
    output_tokens: Lengths
    shared: float = 0.0
    warmup: int = 0
    seed: int = 0
    duration: float | None = None
    ignore_eos: bool = True
    temperature: float = 0.0


def _words(count: int, rng: np.random.Generator) -> list[str]:
    return [WORDS[i] for i in rng.integers(0, len(WORDS), size=count)]


def prompt_text(words: int, shared: list[str], rng: np.random.Generator) -> str:
    """`words` words; those of `shared` come first, as many as fit."""
    head = shared[:words]
    return " ".join([*head, *_words(words - len(head), rng)])


def arrival_times(arrivals: str, rate: float, count: int, rng: np.random.Generator) -> list[float]:
    """Seconds after the start. Poisson: independent gaps, exponential with mean 1/rate. The first is at 0."""
    if arrivals == "constant":
        return [i / rate for i in range(count)]
    gaps = rng.exponential(1 / rate, size=count)
    gaps[0] = 0.0
    return [float(at) for at in np.cumsum(gaps)]


def wished_lengths(load: Load) -> tuple[list[int], list[int]]:
    """Tokens of each prompt and of each answer, as the load asks for them."""
    rng = np.random.default_rng([load.seed, 0])
    return load.input_tokens.draw(load.requests, rng), load.output_tokens.draw(load.requests, rng)


def make_items(load: Load, ratio: Ratio) -> tuple[Item, ...]:
    """All requests of a run. Lengths, words and times have generators of their own, so that a change of the
    rate leaves the prompts as they were."""
    word_rng, time_rng = (np.random.default_rng([load.seed, n]) for n in (1, 2))
    inputs, outputs = wished_lengths(load)
    pool = _words(load.input_tokens.longest, np.random.default_rng([load.seed, 3]))
    times: list[float | None] = [None] * load.requests
    if load.arrivals != "closed":
        assert load.rate is not None
        times = list(arrival_times(load.arrivals, load.rate, load.requests, time_rng))
    items = []
    for index, (tokens, answer, at) in enumerate(zip(inputs, outputs, times, strict=True)):
        count = ratio.words(tokens)
        text = prompt_text(count, pool[: round(load.shared * count)], word_rng)
        items.append(Item(index, text, tokens, answer, at))
    return tuple(items)


def warm_prompts(load: Load, ratio: Ratio) -> list[str]:
    """Prompts for the warm-up, none of which the run has again.

    They begin with what the prompts of the run have in common, and the first is as long as the longest of
    these: a server that caches prefixes then has the whole of it before the first measured request.
    """
    rng = np.random.default_rng([load.seed, 1001])
    lengths = load.input_tokens.draw(load.warmup, rng)
    pool = _words(load.input_tokens.longest, np.random.default_rng([load.seed, 3]))
    if lengths and load.shared:
        lengths[0] = max(load.input_tokens.draw(load.requests, np.random.default_rng([load.seed, 0])))
    counts = [ratio.words(tokens) for tokens in lengths]
    return [prompt_text(count, pool[: round(load.shared * count)], rng) for count in counts]


def fresh_prompts(load: Load, ratio: Ratio, count: int, purpose: int) -> list[str]:
    """Prompts for probes that share no beginning with those of the run."""
    rng = np.random.default_rng([load.seed, 1000 + purpose])
    return [prompt_text(ratio.words(tokens), [], rng) for tokens in load.input_tokens.draw(count, rng)]
