"""What can go wrong in the serving core.

ServingError
├── ConfigError         a setting that cannot work
├── RequestTooLarge     a request that could never fit
├── UnknownRequest      an id that is not in the engine
├── IntegrityError      an invariant is broken (raised by check_integrity only)
├── BadDraft            a drafter returned what is no token id (tutor.serving.speculative)
├── CodecError          bytes that a codec cannot encode or decode (tutor.serving.tier_types)
└── TierError           a call to the tiers that makes no sense: an unknown entry, nothing to save
    └── EntryInUse      a pinned entry cannot be demoted, evicted or cleared
"""

from __future__ import annotations


class ServingError(Exception):
    """Base of the serving core's errors; the message is a sentence."""


class ConfigError(ServingError):
    pass


class RequestTooLarge(ServingError):
    pass


class UnknownRequest(ServingError):
    pass


class IntegrityError(ServingError):
    pass


def ensure(condition: bool, sentence: str) -> None:
    """Raise IntegrityError with the invariant in words."""
    if not condition:
        raise IntegrityError(sentence)
