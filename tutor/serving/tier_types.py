"""What passes in and out of the tiers: settings, codecs, hits, choices, and what is told about moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tutor.serving.errors import ServingError

PLAIN = "none"


class TierError(ServingError):
    """A call that makes no sense: an unknown entry, a sequence without tokens."""


class EntryInUse(TierError):
    """A pinned entry cannot be demoted, evicted or cleared."""


class CodecError(ServingError):
    """Bytes that a codec cannot encode or decode."""


class Codec(Protocol):
    """Fewer bytes for a saved sequence. Both ways raise CodecError."""

    @property
    def name(self) -> str: ...
    @property
    def lossy(self) -> bool: ...
    def encode(self, blob: bytes) -> bytes: ...
    def decode(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TierConfig:
    """`codec`: name of the codec that encodes what enters, or "none"."""

    name: str
    capacity_bytes: int
    codec: str = PLAIN


@dataclass(frozen=True, slots=True)
class Hit:
    """A stored sequence whose first `num_tokens` tokens are those asked for. Positions from there on, up to
    `stored_tokens`, belong to another continuation: remove them after restoring."""

    key: int
    num_tokens: int
    stored_tokens: int
    tier: str
    num_bytes: int
    lossy: bool

    @property
    def surplus_tokens(self) -> int:
        return self.stored_tokens - self.num_tokens


@dataclass(frozen=True, slots=True)
class Choice:
    """The cheaper way to the K and V of a hit's tokens, and both prices in seconds."""

    restore: bool
    load_seconds: float
    prefill_seconds: float


class SequenceMoved(msgspec.Struct, frozen=True):
    """A saved sequence changed its tier. "" is outside: `from_tier` of an admission, `to_tier` of the end.

    `num_bytes`: as stored in `to_tier`; as freed, when that is "".
    """

    key: int
    from_tier: str
    to_tier: str
    num_tokens: int
    num_bytes: int
    encoding: str
    reason: str


OnMove = Callable[[SequenceMoved], None]
