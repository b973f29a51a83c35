"""What the scheduler tells the trace, with the reason for every decision.

Kept apart so that scheduler and manager read as decisions only, and so that a run without a trace builds
no event and no sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tutor.serving.block_pool import KVCacheBlock
from tutor.serving.outputs import ScheduledRequest
from tutor.serving.prefix_cache import Link, hex_hash
from tutor.serving.request import Request
from tutor.serving.tier_types import SequenceMoved
from tutor.serving.tiering import Loadable
from tutor.trace import events as ev

Emit = Callable[[ev.AnyEvent], None]


class Tracer:
    """Turns decisions into events; with `emit` None every method does nothing."""

    def __init__(self, emit: Emit | None) -> None:
        self._emit = emit

    # --- requests -------------------------------------------------------------------------------

    def arrived(self, r: Request, place: int) -> None:
        if self._emit:
            self._emit(ev.RequestArrived(r.request_id, r.label, r.num_prompt_tokens, r.max_tokens, r.prompt))
            reason = f"{place} before it" if place else "next to be admitted"
            self._emit(ev.RequestQueued(r.request_id, place, reason))

    def admitted(self, r: Request, cached: int, why: str, resumed: bool) -> None:
        if self._emit:
            reason = f"slot {r.slot} is free; {why}"
            if resumed and r.num_swapped_tokens:
                reason = (
                    f"resumes in slot {r.slot}: {r.num_swapped_tokens} tokens are restored from host memory"
                )
            elif resumed:
                reason = f"resumes in slot {r.slot}: {r.num_tokens - cached} tokens are recomputed"
            self._emit(ev.RequestScheduled(r.request_id, cached, reason))
            self._emit(ev.SlotAssigned(r.slot or 0, r.request_id))

    def noted(self, text: str) -> None:
        """One sentence for whoever watches."""
        if self._emit:
            self._emit(ev.Noted(text))

    def preempted(self, victim: Request, winner: Request, way: str) -> None:
        if self._emit:
            name = "its own next token" if victim is winner else f"{winner.name}'s next tokens"
            reason = f"no free block for {name}; it joined last, so it gives up its blocks"
            if way == "swap":
                reason += " and its KV is saved in host memory"
            self._emit(ev.RequestPreempted(victim.request_id, victim.num_computed_tokens, reason, way))

    def emitted(self, r: Request, token_ids: list[int], text: str) -> None:
        if self._emit:
            self._emit(ev.TokensEmitted(r.request_id, tuple(token_ids), text))

    def verified(self, r: Request, drafts: list[int], num_accepted: int) -> None:
        if self._emit:
            self._emit(ev.TokensDrafted(r.request_id, tuple(drafts), r.draft_source))
            accepted, rejected = tuple(drafts[:num_accepted]), tuple(drafts[num_accepted:])
            self._emit(ev.TokensVerified(r.request_id, accepted, rejected))

    def finished(self, r: Request, reason: str) -> None:
        if self._emit:
            self._emit(ev.RequestFinished(r.request_id, reason))

    def slot_released(self, r: Request) -> None:
        if self._emit:
            self._emit(ev.SlotReleased(r.slot or 0, r.request_id))

    # --- blocks ---------------------------------------------------------------------------------

    def matched(self, r: Request, blocks: Sequence[KVCacheBlock], sources: Sequence[str], size: int) -> None:
        if self._emit and blocks:
            ids = tuple(block.block_id for block in blocks)
            names = ", ".join(dict.fromkeys(sources))
            self._emit(ev.PrefixMatched(r.request_id, names, len(ids) * size, ids))

    def loaded(self, r: Request, saved: Loadable) -> None:
        if self._emit:
            self._emit(ev.SequenceLoaded(r.request_id, saved.num_tokens, len(saved.blob), saved.reason))

    def moved(self, move: SequenceMoved) -> None:
        """Give this to a TierStore as `on_move`."""
        if self._emit:
            self._emit(
                ev.SequenceMoved(
                    move.key, move.from_tier, move.to_tier, move.num_tokens, move.num_bytes, move.encoding,
                    move.reason,
                )
            )  # fmt: skip

    def copied(self, r: Request, source: KVCacheBlock, num_tokens: int) -> None:
        if self._emit:
            target = r.block_table[source.index].block_id
            reason = "it is shared and only partly filled, so the writer needs its own"
            self._emit(ev.BlockCopied(r.request_id, source.block_id, target, num_tokens, reason))

    def allocated(self, r: Request, taken: Sequence[KVCacheBlock], num_new: int) -> None:
        if self._emit:
            reason = f"{r.num_computed_tokens} + {num_new} tokens need {len(r.block_table)} blocks"
            self._emit(ev.BlocksAllocated(r.request_id, tuple(b.block_id for b in taken), reason))

    def stored(self, blocks: Sequence[KVCacheBlock], links: Sequence[Link]) -> None:
        if self._emit:
            for block in blocks:
                parent = links[block.index - 1][0] if block.index else 0
                self._emit(ev.BlockStored(block.block_id, hex_hash(block.block_hash), hex_hash(parent)))

    def evicted(self, blocks: Sequence[KVCacheBlock], reason: str) -> None:
        if self._emit:
            for block in blocks:
                self._emit(ev.BlockEvicted(block.block_id, hex_hash(block.block_hash), reason))

    def freed(self, r: Request, released: Sequence[KVCacheBlock], reason: str) -> None:
        if self._emit:
            ids = tuple(block.block_id for block in r.block_table)
            free = tuple(block.block_id for block in released)
            self._emit(ev.BlocksFreed(r.request_id, ids, free, reason))

    # --- steps ----------------------------------------------------------------------------------

    def step(
        self,
        shares: Sequence[ScheduledRequest],
        requests: dict[str, Request],
        *,
        num_running: int,
        num_waiting: int,
        budget: int,
        reason: str,
    ) -> None:
        if not self._emit:
            return
        told: list[ev.ScheduledTokens] = []
        left = budget
        for share in shares:
            r = requests[share.request_id]
            count = len(share.token_ids)
            phase = "decode" if r.is_decoding else "prefill"
            why = _why(r, count, budget, left)
            told.append(ev.ScheduledTokens(r.request_id, share.slot, share.start, count, phase, why))
            left -= count
        self._emit(ev.StepScheduled(tuple(told), num_running, num_waiting, budget, reason))


def _why(r: Request, count: int, budget: int, left: int) -> str:
    if r.is_decoding:
        drafts = f" and verifies {count - 1} draft{'s' * (count > 2)}" if count > 1 else ""
        return f"decodes its newest token{drafts}"
    missing = r.num_uncomputed_tokens
    if count == missing:
        return f"gets all {missing} tokens it still has to compute"
    return f"gets {count} of {missing} tokens: budget {budget} - {budget - left} already given"
