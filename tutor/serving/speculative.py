"""Speculative decoding: who guesses the next tokens of a request, and the account of what became of them.

A drafter guesses, the model verifies all guesses in one pass (see `tutor/llama/verify.py`). How many
guesses are worth it is the subject of `draft_length.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import index
from typing import Protocol

from tutor.serving.errors import ConfigError, ServingError, ensure
from tutor.serving.request import Request


class BadDraft(ServingError):
    """A drafter returned what is no token id."""


class Drafter(Protocol):
    """Guesses the tokens that follow `request.token_ids`. A guess may be wrong; it costs time, never text."""

    name: str

    def propose(self, request: Request, max_drafts: int) -> list[int]:
        """At most `max_drafts` token ids, in order; none if the drafter has no idea."""
        ...

    def forget(self, request_id: str) -> None:
        """The request is over: drop what is kept about it."""
        ...


@dataclass(slots=True)
class _Index:
    """Where each n-gram of one request was last followed by a token."""

    tokens: list[int]  # the request's own list, which only grows
    latest: dict[tuple[int, ...], int] = field(default_factory=dict)  # n-gram -> position after it
    done: int = 0  # n-grams that end at a position up to this one are in `latest`


class PromptLookupDrafter:
    """Repeats what followed the latest earlier occurrence of the last n-gram, the longest n first.

    Good for summaries, edits and code, where the answer quotes the prompt; needs no second model. When the
    occurrence is so late that the known text ends before enough drafts, the copy goes on into the drafts
    themselves, as LZ77 does: a repeating text is drafted at full length. The index of a request grows with
    its tokens, so that a call costs time for new tokens only, not for the whole text.

    Source: Saxena, "Prompt Lookup Decoding", 2023, https://github.com/apoorvumang/prompt-lookup-decoding.
    """

    name = "prompt_lookup"

    def __init__(self, ngram_max: int = 3, ngram_min: int = 1) -> None:
        if not 1 <= ngram_min <= ngram_max:
            raise ConfigError(f"n-grams need 1 <= ngram_min <= ngram_max, not {ngram_min} and {ngram_max}.")
        self.ngram_max, self.ngram_min = ngram_max, ngram_min
        self._indexes: dict[str, _Index] = {}

    def propose(self, request: Request, max_drafts: int) -> list[int]:
        tokens = request.token_ids
        latest = self._extended(request).latest
        for n in range(min(self.ngram_max, len(tokens) - 1), self.ngram_min - 1, -1):
            start = latest.get(tuple(tokens[-n:]))
            if start is not None:
                period = len(tokens) - start
                return [tokens[start + i % period] for i in range(max_drafts)]
        return []

    def _extended(self, request: Request) -> _Index:
        """The request's index, up to the token before the newest."""
        kept = self._indexes.get(request.request_id)
        if kept is None or kept.tokens is not request.token_ids:  # an id may be used again
            kept = self._indexes[request.request_id] = _Index(request.token_ids)
        tokens = kept.tokens
        for end in range(kept.done + 1, len(tokens)):
            for n in range(self.ngram_min, min(self.ngram_max, end) + 1):
                kept.latest[tuple(tokens[end - n : end])] = end
        kept.done = max(kept.done, len(tokens) - 1)
        return kept

    def forget(self, request_id: str) -> None:
        self._indexes.pop(request_id, None)

    def check_integrity(self) -> None:
        for name, kept in self._indexes.items():
            ensure(kept.done < len(kept.tokens), f"{name}: the index is ahead of the tokens")
            for gram, end in kept.latest.items():
                ensure(self.ngram_min <= len(gram) <= self.ngram_max, f"{name}: an n-gram of {len(gram)}")
                ensure(end <= kept.done, f"{name}: an n-gram ends at {end}, {kept.done} are indexed")
                ensure(tuple(kept.tokens[end - len(gram) : end]) == gram, f"{name}: {gram} is not at {end}")


class OracleDrafter:
    """Knows the answers and is wrong on purpose: each draft is right with probability alpha.

    The coin of a place in the answer depends on (seed, request id, place) alone, so that batching, preemption
    and the number of drafts change nothing, and a higher alpha never makes a right draft wrong.
    `continuations` has the right output tokens by request id; beyond their end nothing is drafted.
    """

    name = "oracle"

    def __init__(
        self, continuations: Mapping[str, Sequence[int]], alpha: float, vocab_size: int, seed: int = 0
    ) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ConfigError(f"alpha is between 0 and 1, not {alpha}.")
        if vocab_size < 2:
            raise ConfigError(f"A wrong token needs a vocabulary of 2 or more, not {vocab_size}.")
        self.continuations = continuations
        self.alpha, self.vocab_size, self.seed = alpha, vocab_size, seed

    def propose(self, request: Request, max_drafts: int) -> list[int]:
        first = request.num_output_tokens
        known = self.continuations.get(request.request_id, ())[first : first + max_drafts]
        return [self._dialled(request.request_id, first + i, token) for i, token in enumerate(known)]

    def _dialled(self, request_id: str, place: int, right: int) -> int:
        digest = blake2b(f"{self.seed}/{place}/{request_id}".encode(), digest_size=16).digest()
        if int.from_bytes(digest[:8], "big") / 2**64 < self.alpha:
            return right
        return (right + 1 + int.from_bytes(digest[8:], "big") % (self.vocab_size - 1)) % self.vocab_size

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""


class CallbackDrafter:
    """Drafts by a function (token ids so far, how many at most) -> ids; what is too much is cut off."""

    def __init__(
        self, fn: Callable[[Sequence[int], int], Sequence[int]], vocab_size: int, name: str = "callback"
    ) -> None:
        self._fn = fn
        self.vocab_size, self.name = vocab_size, name

    def propose(self, request: Request, max_drafts: int) -> list[int]:
        """The function sees a copy of the ids. Raises BadDraft for what is not an id of the vocabulary."""
        drafts = []
        for value in list(self._fn(list(request.token_ids), max_drafts))[:max_drafts]:
            try:
                token = index(value)
            except TypeError:
                raise BadDraft(f"The drafter returned {value!r}; a draft is a token id.") from None
            if not 0 <= token < self.vocab_size:
                raise BadDraft(f"The drafter returned {token}; ids go from 0 to {self.vocab_size - 1}.")
            drafts.append(token)
        return drafts

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""


@dataclass(slots=True)
class SpeculationStats:
    """The account of speculation, for one request or for all.

    passes: decode passes of a request, with drafts or without. drafted, accepted: drafts. emitted: tokens
    that reached the request: one a pass and the accepted drafts, less what came after its end.
    histogram[j]: passes that accepted exactly j drafts. drafted_at[i], accepted_at[i]: drafts at place i of a
    pass, and how many of those were accepted.
    """

    drafted: int = 0
    accepted: int = 0
    passes: int = 0
    emitted: int = 0
    histogram: list[int] = field(default_factory=list)
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)

    def record(self, drafted: int, accepted: int, emitted: int | None = None) -> None:
        """Book one pass. emitted is accepted + 1 unless the request ended inside its drafts.

        Raises ConfigError for numbers that cannot be.
        """
        emitted = accepted + 1 if emitted is None else emitted
        if not (0 <= accepted <= drafted and 1 <= emitted <= accepted + 1):
            raise ConfigError(f"A pass cannot draft {drafted}, accept {accepted} and emit {emitted}.")
        self.drafted += drafted
        self.accepted += accepted
        self.passes += 1
        self.emitted += emitted
        self.histogram += [0] * (accepted + 1 - len(self.histogram))
        self.histogram[accepted] += 1
        for places, count in ((self.drafted_at, drafted), (self.accepted_at, accepted)):
            places += [0] * (drafted - len(places))
            for place in range(count):
                places[place] += 1

    @property
    def wasted(self) -> int:
        """Verified rows that emitted nothing: rejected drafts, and those after a request's end."""
        return self.drafted + self.passes - self.emitted

    @property
    def acceptance_rate(self) -> float:
        """accepted / drafted; 0 without drafts. Lower than the formula's alpha: see `draft_length`."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a pass, 1 + accepted / passes; 1 before the first. vLLM leaves out passes without drafts."""
        return 1.0 + self.accepted / self.passes if self.passes else 1.0

    @property
    def acceptance_at(self) -> list[float]:
        """Share of the drafts at each place of a pass that was accepted (all before it were too)."""
        return [hit / tried for hit, tried in zip(self.accepted_at, self.drafted_at, strict=True)]

    def check_integrity(self) -> None:
        ensure(sum(self.histogram) == self.passes, "the histogram does not add up to the passes")
        by_pass = sum(j * count for j, count in enumerate(self.histogram))
        ensure(by_pass == self.accepted == sum(self.accepted_at), "accepted drafts do not add up")
        ensure(sum(self.drafted_at) == self.drafted, "drafts do not add up")
        ensure(self.passes <= self.emitted <= self.passes + self.accepted, "emitted tokens do not add up")
        ensure(all(h <= t for h, t in zip(self.accepted_at, self.drafted_at, strict=True)), "more hits")
        ensure(self.accepted_at == sorted(self.accepted_at, reverse=True), "a later draft without an earlier")
