"""The life of one request, block or slot, told from the records up to a cursor. Pure folds.

Each function returns the entries in order; an entry says when, what and, where the engine gave one, why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tutor.trace import events as ev


class Entry(msgspec.Struct, frozen=True):
    """`ts` is seconds since the trace began; `text` one sentence part."""

    step: int
    ts: float
    text: str


def labels(records: Iterable[ev.TraceRecord]) -> dict[str, str]:
    """request_id -> the letter that the panels use."""
    return {r.event.request_id: r.event.label for r in records if isinstance(r.event, ev.RequestArrived)}


def request_history(records: Sequence[ev.TraceRecord], request_id: str) -> tuple[Entry, ...]:
    """Everything that happened to a request. Runs of equal decode steps are one entry."""
    entries: list[Entry] = []
    decodes: list[ev.TraceRecord] = []

    def close_run() -> None:
        if decodes:
            first, last = decodes[0], decodes[-1]
            until = f" to {last.step}" if last.step != first.step else ""
            count = len(decodes)
            tokens = "1 token" if count == 1 else f"{count} tokens"
            entries.append(
                Entry(first.step, first.ts, f"decodes {tokens}, one a step (steps {first.step}{until})")
            )
            decodes.clear()

    for record in records:
        text = _request_text(record.event, request_id)
        if text == "decode":
            decodes.append(record)
        elif text:
            close_run()
            entries.append(Entry(record.step, record.ts, text))
    close_run()
    return tuple(entries)


def _request_text(event: ev.AnyEvent, request_id: str) -> str:
    if isinstance(event, ev.StepScheduled):
        share = next((s for s in event.scheduled if s.request_id == request_id), None)
        if share is None:
            return ""
        if share.phase == "decode" and share.num_tokens == 1:
            return "decode"
        return f"{share.phase} of {share.num_tokens} tokens from position {share.start}: {share.reason}"
    if getattr(event, "request_id", None) != request_id:
        return ""
    match event:
        case ev.RequestArrived():
            return (
                f"arrives with {event.num_prompt_tokens} prompt tokens, at most {event.max_tokens} to write"
            )
        case ev.RequestQueued():
            return f"waits at place {event.position}: {event.reason}"
        case ev.RequestScheduled():
            return f"is admitted with {event.num_cached_tokens} cached tokens: {event.reason}"
        case ev.RequestPreempted():
            fate = "saves" if event.way == "swap" else "loses"
            return f"is preempted and {fate} {event.num_computed_tokens} computed tokens: {event.reason}"
        case ev.RequestFinished():
            return f"finishes: {event.finish_reason}"
        case ev.SlotAssigned():
            return f"takes slot {event.slot}"
        case ev.SlotReleased():
            return f"leaves slot {event.slot}"
        case ev.PrefixMatched():
            known = f"{event.num_cached_tokens} tokens known from {event.source}"
            return f"shares blocks {_ids(event.block_ids)}: {known}"
        case ev.BlocksAllocated():
            return f"gets block{_s(event.block_ids)} {_ids(event.block_ids)}: {event.reason}"
        case ev.BlocksFreed():
            return f"gives back block{_s(event.block_ids)} {_ids(event.block_ids)}: {event.reason}"
        case ev.SequenceLoaded():
            return f"starts from {event.num_tokens} saved tokens: {event.reason}"
        case ev.BlockCopied():
            return f"copies {event.num_tokens} tokens to block {event.to_block}: {event.reason}"
        case ev.TokensVerified():
            return f"keeps {len(event.accepted)} drafted tokens, drops {len(event.rejected)}"
    return ""


def block_history(records: Sequence[ev.TraceRecord], block_id: int) -> tuple[Entry, ...]:
    """Who held a block when, when it became full, and when its content was forgotten."""
    names = labels(records)
    entries: list[Entry] = []
    for record in records:
        text = _block_text(record.event, block_id, names)
        if text:
            entries.append(Entry(record.step, record.ts, text))
    return tuple(entries)


def _block_text(event: ev.AnyEvent, block_id: int, names: dict[str, str]) -> str:
    match event:
        case ev.BlocksAllocated() if block_id in event.block_ids:
            return f"goes to {names.get(event.request_id, '?')}: {event.reason}"
        case ev.PrefixMatched() if block_id in event.block_ids:
            who = names.get(event.request_id, "?")
            return f"is shared with {who}: the same tokens were computed for {event.source}"
        case ev.BlockStored() if event.block_id == block_id:
            return f"is full; it can be found under hash {event.block_hash[:8]} from now on"
        case ev.BlockEvicted() if event.block_id == block_id:
            return f"forgets its content (hash {event.block_hash[:8]}): {event.reason}"
        case ev.BlocksFreed() if block_id in event.block_ids:
            rest = "nobody holds it now" if block_id in event.released else "others still hold it"
            return f"is given back by {names.get(event.request_id, '?')} ({rest}): {event.reason}"
        case ev.BlockMoved() if event.block_id == block_id:
            return f"moves from {event.from_tier} to {event.to_tier}: {event.reason}"
    return ""


def slot_history(records: Sequence[ev.TraceRecord], slot: int) -> tuple[Entry, ...]:
    """Which requests ran in a slot, from when to when, and how many tokens they ran there."""
    names = labels(records)
    entries: list[Entry] = []
    ran = 0
    for record in records:
        event = record.event
        if isinstance(event, ev.SlotAssigned) and event.slot == slot:
            ran = 0
            entries.append(Entry(record.step, record.ts, f"is taken by {names.get(event.request_id, '?')}"))
        elif isinstance(event, ev.StepScheduled):
            ran += sum(share.num_tokens for share in event.scheduled if share.slot == slot)
        elif isinstance(event, ev.SlotReleased) and event.slot == slot:
            who = names.get(event.request_id, "?")
            entries.append(Entry(record.step, record.ts, f"is left by {who}, which ran {ran} tokens here"))
    return tuple(entries)


def _ids(block_ids: Sequence[int]) -> str:
    return ", ".join(map(str, block_ids))


def _s(block_ids: Sequence[int]) -> str:
    return "" if len(block_ids) == 1 else "s"
