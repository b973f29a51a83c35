"""llama-server's `/slots`: what each slot does right now."""

from __future__ import annotations

import msgspec

from tutor.client.attach.views import SlotView


class _Next(msgspec.Struct):
    n_decoded: int = 0
    n_remain: int = 0


class _Slot(msgspec.Struct):
    id: int
    is_processing: bool = False
    n_ctx: int = 0
    n_prompt_tokens: int = 0
    n_prompt_tokens_cache: int = 0
    next_token: list[_Next] | _Next | None = None


def parse_slots(content: bytes) -> tuple[SlotView, ...]:
    """The slots in order. `next_token` is a list in newer releases and an object in older ones.

    msgspec.DecodeError when this is no list of slots.
    """
    views = []
    for slot in msgspec.json.decode(content, type=list[_Slot]):
        following = slot.next_token
        if isinstance(following, list):
            following = following[0] if following else None
        following = following or _Next()
        views.append(
            SlotView(
                slot=slot.id,
                busy=slot.is_processing,
                num_context=slot.n_ctx,
                num_prompt=slot.n_prompt_tokens if slot.is_processing else 0,
                num_cached=slot.n_prompt_tokens_cache if slot.is_processing else 0,
                num_decoded=following.n_decoded if slot.is_processing else 0,
                num_left=max(0, following.n_remain) if slot.is_processing else 0,
            )
        )
    return tuple(sorted(views, key=lambda view: view.slot))


def usage_of(slots: tuple[SlotView, ...]) -> float | None:
    """Share of all slots' contexts that busy slots fill; what idle slots keep cached is not known."""
    room = sum(slot.num_context for slot in slots)
    return sum(slot.num_used for slot in slots if slot.busy) / room if room else None
