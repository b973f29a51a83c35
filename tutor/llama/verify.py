"""Verification: which drafts the model accepts, and the token that it draws after them.

A pass over the newest token and k drafts gives 1 + k rows; row i predicts the token that follows entry i, so
it judges draft i, and the last row gives the token after the last draft. Each function returns the accepted
drafts and one token more, 1 to 1 + k ids. What comes after the first rejected draft was computed behind a
wrong token: its K and V have to be removed from the cache.

How probabilities are made from logits is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tutor.llama.errors import EngineMisuse

Sparse = tuple[NDArray[np.integer[Any]], NDArray[np.float64]]
"""(ids, probabilities): each id once, in any order; all other tokens have probability 0."""

Distribution = NDArray[np.float64] | Sparse
"""float64 [vocabulary], or sparse; the sum is 1."""


class Uniform(Protocol):
    """A source of numbers from [0, 1): numpy's Generator, or random.Random."""

    def random(self) -> float: ...


def verify_greedy(rows: Sequence[NDArray[np.floating[Any]]], drafts: Sequence[int]) -> list[int]:
    """Accept drafts while they are the most likely token (the lowest id among ties).

    rows: 1 + k rows of logits, [vocabulary] each. The result is what greedy decoding gives,
    one token a pass. Raises EngineMisuse when there are not 1 + k rows.
    """
    if len(rows) != 1 + len(drafts):
        raise EngineMisuse(
            f"{len(drafts)} drafts came with {len(rows)} rows of logits.", "Pass one row more than drafts."
        )
    return verify_choices(lambda i: int(np.argmax(rows[i])), drafts)


def verify_choices(choose: Callable[[int], int], drafts: Sequence[int]) -> list[int]:
    """Accept drafts while they are what the target itself chooses at their place.

    choose(i) chooses from row i, by argmax or by drawing; it is called in order and not beyond the first
    rejection, and may take for granted that drafts 0..i-1 were accepted. When it draws with the numbers that
    plain decoding would use there, the text is the very one of plain decoding. For drafters that name a token
    without drawing it this is rejection sampling too: a draft x is accepted with probability p(x), which is
    min(1, p/q) at q = 1, and otherwise the token follows p without x.
    """
    emitted: list[int] = []
    for i, draft in enumerate(drafts):
        emitted.append(choose(i))
        if emitted[-1] != draft:
            return emitted
    emitted.append(choose(len(drafts)))
    return emitted


def verify_sampled(
    probs: Callable[[int, Sequence[int]], Distribution],
    drafts: Sequence[int],
    rng: Uniform,
    q: Sequence[Distribution] | None = None,
) -> list[int]:
    """Rejection sampling that leaves the target's distribution exactly as it is, whatever the drafter does.

    probs(i, accepted): the target's distribution at row i, after the filters, when the drafts `accepted` (the
    first i) come before it. q: the distribution that each draft was drawn from; None when the drafter named
    its tokens for certain. Draft x is accepted with probability min(1, p(x)/q(x)). After a rejection the
    token is drawn from norm(max(p - q, 0)), which makes up for what was accepted too seldom; after the last
    draft it is drawn from p. Uses one random number a draft and one more.

    Source: Leviathan et al. 2023, arXiv:2211.17192, appendix A.1; Chen et al. 2023, arXiv:2302.01318.
    Raises EngineMisuse when q does not match the drafts, or gives a draft probability 0.
    """
    if q is not None and len(q) != len(drafts):
        raise EngineMisuse(
            f"{len(drafts)} drafts came with {len(q)} distributions.", "Pass the one each was drawn from."
        )
    for i, draft in enumerate(drafts):
        p = probs(i, drafts[:i])
        drawn_with = 1.0 if q is None else _mass(q[i], draft)
        if drawn_with <= 0.0:
            raise EngineMisuse(
                f"Draft {draft} has probability 0 in the distribution it should come from.",
                "Pass the distribution after the drafter's own filters.",
            )
        if rng.random() * drawn_with >= _mass(p, draft):
            rest = _without(p, draft) if q is None else _residual(p, q[i])
            return [*drafts[:i], _draw(rest, rng.random())]
    return [*drafts, _draw(_pairs(probs(len(drafts), drafts)), rng.random())]


def _pairs(distribution: Distribution) -> Sparse:
    if isinstance(distribution, tuple):
        return distribution
    return np.arange(len(distribution)), distribution


def _mass(distribution: Distribution, token: int) -> float:
    """The probability of a token."""
    if isinstance(distribution, tuple):
        ids, probs = distribution
        return float(probs[ids == token].sum())
    return float(distribution[token])


def _masses(distribution: Distribution, ids: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """The probabilities of many tokens, in the order of `ids`."""
    if not isinstance(distribution, tuple):
        dense: NDArray[np.float64] = distribution[ids]
        return dense
    order = np.argsort(distribution[0])
    known, probs = distribution[0][order], distribution[1][order]
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[places] == ids, probs[places], 0.0)


def _without(p: Distribution, token: int) -> Sparse:
    """p with nothing for `token`, not normalised: the residual of a draft that was named for certain."""
    ids, probs = _pairs(p)
    left = np.where(ids == token, 0.0, probs)
    return (ids, left) if left.any() else (ids, probs)


def _residual(p: Distribution, q: Distribution) -> Sparse:
    """max(p - q, 0), over the ids of p and not normalised.

    Nothing is left over only where p is q: a rejection is then a matter of rounding, and p itself is right.
    """
    ids, probs = _pairs(p)
    left = np.maximum(probs - _masses(q, ids), 0.0)
    return (ids, left) if left.any() else (ids, probs)


def _draw(distribution: Sparse, u: float) -> int:
    """The token at u of the cumulative weights; a token of weight 0 is never drawn."""
    ids, weights = distribution
    ends = np.cumsum(weights)
    below = np.nextafter(ends[-1], 0.0)  # u * total may round up to the total
    return int(ids[np.searchsorted(ends, min(u * ends[-1], below), side="right")])
