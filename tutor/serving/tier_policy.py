"""What a saved sequence is worth: prices of loading and recomputing, and the order of eviction.

Recomputing n tokens costs compute, loading them costs a transfer: which is cheaper depends on the tier's rate
and, for short sequences, on its latency alone. The cost-aware policy keeps what saves most seconds a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from tutor.serving.errors import ConfigError

Policy = Literal["lru", "lfu", "cost"]
POLICIES: tuple[Policy, ...] = ("lru", "lfu", "cost")
HALF_LIFE = 64  # admissions and fetches after which a past use counts half


class CostModel(Protocol):
    """Prices in seconds."""

    def load_seconds(self, num_bytes: int, tier: str) -> float: ...
    def prefill_seconds(self, num_tokens: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Link:
    """The way from a tier to the cache. A codec's decoding counts as part of its time."""

    latency_seconds: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        if self.latency_seconds < 0 or self.bytes_per_second <= 0:
            raise ConfigError("A link needs a latency of 0 or more and a rate above 0.")


@dataclass(frozen=True, slots=True)
class LinearCosts:
    """load = latency + bytes / rate of the tier's link; prefill = tokens * a + tokens² * b.

    The square is attention's share: token i looks back at i others.
    """

    links: Mapping[str, Link]
    seconds_per_token: float
    seconds_per_token_squared: float = 0.0

    def load_seconds(self, num_bytes: int, tier: str) -> float:
        link = self.links[tier]
        return link.latency_seconds + num_bytes / link.bytes_per_second

    def prefill_seconds(self, num_tokens: int) -> float:
        return num_tokens * (self.seconds_per_token + num_tokens * self.seconds_per_token_squared)


@dataclass(slots=True)
class Entry:
    """A stored sequence. `num_bytes`: as stored, in the tier's own overhead too; `encoding`: codec's name.

    `lossy`: its K and V went through a codec that loses something, here or before they were admitted.
    `uses` counts admission and fetches; `heat` counts them with age (see `HALF_LIFE`), as of `last_used`.
    """

    key: int
    token_ids: tuple[int, ...]
    salt: str
    tier: int
    num_bytes: int
    encoding: str
    lossy: bool
    last_used: int
    uses: int = 1
    heat: float = 1.0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def heat_at(self, now: int) -> float:
        return float(self.heat * 0.5 ** ((now - self.last_used) / HALF_LIFE))

    def touch(self, now: int) -> None:
        """It was used at tick `now`."""
        self.heat = self.heat_at(now) + 1.0
        self.uses += 1
        self.last_used = now


def _saved_seconds(entry: Entry, tier: str, costs: CostModel) -> float:
    """What loading the whole entry saves against recomputing it; negative where recomputing is faster."""
    return costs.prefill_seconds(entry.num_tokens) - costs.load_seconds(entry.num_bytes, tier)


def value(entry: Entry, policy: Policy, tier: str, costs: CostModel, now: int) -> tuple[float, int]:
    """What the policy keeps an entry for; the lowest of a tier has to go first, older ones among equals."""
    match policy:
        case "lru":
            return float(entry.last_used), entry.key
        case "lfu":
            return float(entry.uses), entry.last_used
        case "cost":
            saved = entry.heat_at(now) * _saved_seconds(entry, tier, costs)
            return saved / max(1, entry.num_bytes), entry.last_used
