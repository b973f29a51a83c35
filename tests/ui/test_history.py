"""The life of requests, blocks and slots, told from a trace."""

from __future__ import annotations

from tutor.trace.history import block_history, labels, request_history, slot_history
from tutor.trace.store import TraceStore


def texts(entries: tuple[object, ...]) -> str:
    return "\n".join(f"{e.step}: {e.text}" for e in entries)  # type: ignore[attr-defined]


def test_request_is_told_with_reasons(serving_store: TraceStore) -> None:
    told = texts(request_history(serving_store.records, "a"))
    assert "0: arrives with 5 prompt tokens, at most 3 to write" in told
    assert "1: gets blocks 2, 0: 5 tokens need 2 blocks of 4" in told
    assert "1: prefill of 5 tokens from position 0: gets all 5 tokens" in told
    assert "2: decodes 1 token, one a step (steps 2)" in told
    assert "3: finishes: length" in told
    assert "B" not in told.replace("Blocks", "")


def test_preemption_says_what_is_lost_and_why(serving_store: TraceStore) -> None:
    told = texts(request_history(serving_store.records, "b"))
    assert "is preempted and loses 6 computed tokens: its blocks are needed" in told
    assert "shares blocks 2: 4 tokens known from A" in told


def test_nothing_after_the_cursor_is_told(serving_store: TraceStore) -> None:
    told = texts(request_history(serving_store.records[: serving_store.step_end(1)], "b"))
    assert "preempted" not in told and "shares" not in told


def test_block_is_told_through_all_its_owners(serving_store: TraceStore) -> None:
    told = texts(block_history(serving_store.records, 2))
    assert "goes to A" in told and "is full" in told and "feedbeef" in told
    assert "is shared with B" in told
    assert "given back by A (others still hold it)" in told
    assert "given back by B (nobody holds it now): B was preempted" in told
    assert block_history(serving_store.records, 4) == ()


def test_slot_counts_the_tokens_of_each_stay(serving_store: TraceStore) -> None:
    told = texts(slot_history(serving_store.records, 0))
    assert told == "1: is taken by A\n3: is left by A, which ran 6 tokens here"


def test_labels(serving_store: TraceStore) -> None:
    assert labels(serving_store.records) == {"a": "A", "b": "B"}
