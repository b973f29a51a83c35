"""How many drafts a request gets: the formulas of speculative decoding, a fixed length, an adaptive one.

alpha is the chance that a draft is accepted when all drafts before it were; k the number of drafts; a pass
verifies them in 1 + k rows and emits the accepted ones and one token more.

Source: Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding", ICML 2023,
arXiv:2211.17192 (k is their gamma).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tutor.serving.errors import ConfigError, ensure

Cost = Callable[[int], float]  # rows of a step -> its duration, in any unit

MAX_CREDIT = 2.0  # passes; no longer run of probes can follow a long silence


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens that a pass emits on average, (1 - alpha^(k+1)) / (1 - alpha): equation (1) of the source."""
    _check(alpha, k)
    if 1.0 - alpha < 1e-9:  # the limit; closer to it the quotient would lose its digits
        return k + 1.0
    return (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def speedup(alpha: float, k: int, c: float) -> float:
    """How many times faster than one token a pass, E / (1 + k c): theorem 3.8.

    c: time of one draft in passes of the model. Verifying 1 + k rows is taken to last as long as one row;
    `batch_speedup` drops that assumption.
    """
    return expected_tokens(alpha, k) / (1.0 + k * c)


def compute_ratio(alpha: float, k: int, c: float) -> float:
    """Arithmetic for each emitted token, against one token a pass, (k c + k + 1) / E: theorem 3.11.

    c: arithmetic of one draft, in that of one row of the model.
    """
    return (k * c + k + 1.0) / expected_tokens(alpha, k)


def best_draft_length(alpha: float, c: float, k_max: int = 64) -> int:
    """The k up to `k_max` with the greatest `speedup`; the shortest among equals."""
    return max(range(k_max + 1), key=lambda k: speedup(alpha, k, c))


def batch_speedup(alpha: float, k: int, batch: int, cost: Cost, draft_cost: float = 0.0) -> float:
    """Speed-up when `batch` requests have k drafts each: E · cost(B) / (cost(B (1 + k)) + B k · draft_cost).

    draft_cost: duration of making one draft, in the unit of `cost`.
    """
    spent = cost(batch * (1 + k)) + batch * k * draft_cost
    return expected_tokens(alpha, k) * cost(batch) / spent


def _check(alpha: float, k: int) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ConfigError(f"An acceptance rate is between 0 and 1, not {alpha}.")
    if k < 0:
        raise ConfigError(f"A number of drafts is 0 or more, not {k}.")


def measured_cost(points: Mapping[int, float]) -> Cost:
    """A cost from measured points {rows: duration}: straight lines between them.

    Fewer rows than any point cost as many as the first point; beyond the last one the last line goes on (in
    proportion to the rows when there is only one point). Raises ConfigError without a point or for a value
    that is not positive.
    """
    if not points or min(points) < 1 or min(points.values()) <= 0.0:
        raise ConfigError("A cost needs at least one point; rows and durations have to be positive.")
    rows = sorted(points)

    def cost(n: int) -> float:
        if n <= rows[0] and len(rows) > 1:
            return points[rows[0]]
        if len(rows) == 1:
            return points[rows[0]] * max(1.0, n / rows[0])
        right = min(max(bisect_left(rows, n), 1), len(rows) - 1)
        low, high = rows[right - 1], rows[right]
        slope = (points[high] - points[low]) / (high - low)
        if n > high:
            return points[high] + max(0.0, slope) * (n - high)
        return points[low] + slope * (n - low)

    return cost


class DraftLength(Protocol):
    """Decides how many drafts a request may have in the coming step."""

    name: str

    def choose(self, request_id: str, batch: int, limit: int) -> int:
        """At most `limit` drafts for a request that decodes in a batch of `batch` requests."""
        ...

    def observe(self, request_id: str, drafted: int, accepted: int) -> None:
        """What became of the request's drafts in the step that has just run; 0, 0 if it had none."""
        ...

    def forget(self, request_id: str) -> None:
        """The request is over."""
        ...

    def check_integrity(self) -> None: ...


class FixedDraftLength:
    """Always k drafts, whatever becomes of them."""

    name = "fixed"

    def __init__(self, k: int) -> None:
        _check(0.0, k)
        self.k = k

    def choose(self, request_id: str, batch: int, limit: int) -> int:
        return max(0, min(self.k, limit))

    def observe(self, request_id: str, drafted: int, accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, request_id: str) -> None:
        """Nothing is kept."""

    def check_integrity(self) -> None:
        ensure(self.k >= 0, f"the draft length is {self.k}")


@dataclass(slots=True)
class _Track:
    """Acceptance so far: sums that fade by `decay` with every draft whose turn came."""

    accepted: float
    tried: float
    decay: float
    credit: float = 0.0  # passes that probes may still lose
    probe_cost: float = 0.0  # of the running step if it is a probe, in plain passes

    @property
    def alpha(self) -> float:
        return min(1.0, self.accepted / self.tried)

    def add(self, accepted: int, missed: bool) -> None:
        for hit in [1.0] * accepted + [0.0] * missed:
            self.accepted = self.accepted * self.decay + hit
            self.tried = self.tried * self.decay + 1.0


class AdaptiveDraftLength:
    """The k with the greatest expected speed-up for the acceptance seen lately and for what rows cost now.

    Drafts after a rejected one were never put to the test: alpha is accepted / (accepted + misses), an
    exponential average a request, and starts at that of all requests together. accepted / drafted, the
    figure that servers report, would be too low for the formula.

    A request whose best k is 0 still gets one draft now and then, to see whether alpha has risen. Such a
    probe is paid from a credit that grows by `probe_share` of a pass with every step without drafts, so that
    hostile traffic loses no more than that share; what a probe wins is paid back, so that one that succeeds
    is followed by the next at once. What a finished request leaves goes to the next new one.
    """

    name = "adaptive"

    def __init__(
        self,
        cost: Cost,
        *,
        k_max: int = 8,
        draft_cost: float = 0.0,
        prior: float = 0.7,
        decay: float = 0.9,
        probe_share: float = 0.01,
    ) -> None:
        """prior: alpha before anything is known, in the weight of two drafts. decay: weight of an observation
        after one more. draft_cost: of one draft, in the unit of `cost`. Raises ConfigError."""
        _check(prior, k_max)
        if not 0.0 < decay < 1.0:
            raise ConfigError(f"decay has to be between 0 and 1, not {decay}.")
        if not 0.0 <= probe_share <= 1.0 or draft_cost < 0.0:
            raise ConfigError("probe_share is between 0 and 1, and draft_cost is 0 or more.")
        self.cost, self.draft_cost, self.k_max = cost, draft_cost, k_max
        self._decay, self._probe_share = decay, probe_share
        self._all = _Track(2.0 * prior, 2.0, 1.0 - (1.0 - decay) / 4.0)  # four times the memory
        self._tracks: dict[str, _Track] = {}
        self._left = 0.0

    def alpha(self, request_id: str) -> float:
        """The acceptance that is expected of the request's next draft."""
        return (self._tracks.get(request_id) or self._all).alpha

    def choose(self, request_id: str, batch: int, limit: int) -> int:
        track = self._track(request_id)
        track.probe_cost = 0.0
        longest = min(self.k_max, limit)
        if longest < 1:
            return 0
        gains = [batch_speedup(track.alpha, k, batch, self.cost, self.draft_cost) for k in range(longest + 1)]
        best = gains.index(max(gains))
        return best or self._probe(track, batch)

    def _probe(self, track: _Track, batch: int) -> int:
        """1 when the credit covers a pass whose one draft is rejected."""
        cost = 1.0 / batch_speedup(0.0, 1, batch, self.cost, self.draft_cost)
        track.credit = min(MAX_CREDIT, track.credit + self._probe_share)
        if track.credit < min(cost - 1.0, MAX_CREDIT):
            return 0
        track.probe_cost = cost
        return 1

    def observe(self, request_id: str, drafted: int, accepted: int) -> None:
        """Raises ConfigError if more were accepted than drafted."""
        if not 0 <= accepted <= drafted:
            raise ConfigError(f"{accepted} of {drafted} drafts cannot have been accepted.")
        track = self._track(request_id)
        if drafted and track.probe_cost:
            track.credit = min(MAX_CREDIT, track.credit + 1.0 + accepted - track.probe_cost)
        track.probe_cost = 0.0
        track.add(accepted, accepted < drafted)
        self._all.add(accepted, accepted < drafted)

    def forget(self, request_id: str) -> None:
        track = self._tracks.pop(request_id, None)
        if track is not None:
            self._left = min(MAX_CREDIT, self._left + track.credit)

    def _track(self, request_id: str) -> _Track:
        track = self._tracks.get(request_id)
        if track is None:
            track = _Track(2.0 * self._all.alpha, 2.0, self._decay, self._left)
            self._tracks[request_id] = track
            self._left = 0.0
        return track

    def check_integrity(self) -> None:
        ensure(self._left <= MAX_CREDIT, "more credit is left over than probes may have")
        for name, track in [("all", self._all), *self._tracks.items()]:
            ensure(track.accepted >= 0.0, f"{name}: accepted is {track.accepted}")
            ensure(track.accepted <= track.tried * (1 + 1e-9), f"{name}: more accepted than tried")
            ensure(track.tried <= max(2.0, 1.0 / (1.0 - track.decay)) + 1e-6, f"{name}: sums do not fade")
            ensure(track.credit <= MAX_CREDIT, f"{name}: {track.credit} passes of credit")
