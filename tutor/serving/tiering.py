"""Tiers inside the engine: finished sequences are kept, returning ones are loaded or recomputed."""

from __future__ import annotations

from dataclasses import dataclass

from tutor.serving.request import Request
from tutor.serving.tiers import TierStore


@dataclass(frozen=True, slots=True)
class Loadable:
    """A saved sequence whose first `num_tokens` tokens a request can start from."""

    blob: bytes
    num_tokens: int
    lossy: bool
    reason: str


class Tiering:
    """Decides for each admission whether loading pays, and keeps what requests leave behind.

    min_tokens: shorter sequences are not worth a place.
    """

    def __init__(self, store: TierStore, min_tokens: int = 16) -> None:
        self.store = store
        self._min_tokens = min_tokens

    def worth_loading(self, request: Request, num_cached: int) -> Loadable | None:
        """The saved sequence to start from, if it covers more than the `num_cached` tokens in the cache and
        loading it is faster than computing what it covers. The newest token is always computed."""
        hit = self.store.lookup(request.token_ids[:-1], request.cache_salt)
        if hit is None or hit.num_tokens <= num_cached:
            return None
        costs = self.store.costs
        load = costs.load_seconds(hit.num_bytes, hit.tier)
        compute = costs.prefill_seconds(hit.num_tokens - num_cached)
        if load >= compute:
            return None
        with self.store.in_use(hit.key):
            blob = self.store.fetch(hit.key)
        if blob is None:  # the shelf lost it, so it is computed again
            return None
        reason = (
            f"{hit.num_tokens} tokens are in the {hit.tier} tier: loading takes {load * 1e3:.1f} ms, "
            f"computing {compute * 1e3:.1f} ms"
        )
        return Loadable(blob, hit.num_tokens, hit.lossy, reason)

    def worth_keeping(self, request: Request) -> bool:
        return request.num_computed_tokens >= self._min_tokens

    def keep(self, token_ids: list[int], salt: str, lossy: bool, blob: bytes) -> None:
        """Take in what a lane held; called by the runner, which has the bytes."""
        self.store.admit(token_ids, blob, salt, lossy=lossy)

    def check_integrity(self) -> None:
        self.store.check_integrity()
