"""The engine in full on the real model: each switch does what it says, and the text stays the same.

Shared mode gives the same tokens here because the prompts are golden (test_paged_exactness.py measures the
margins); exact mode gives them for any prompt (tests/llama/test_mechanisms.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lab_kit import begin, last, views

from tutor.labs.registry import get_kind
from tutor.llama.model import Model
from tutor.metrics.waste import Waste, kv_waste
from tutor.trace import events as ev

SMALL: dict[str, object] = {"requests": 3, "tokens": 12, "max_num_seqs": 2, "num_blocks": 10}
PRESSED: dict[str, object] = {**SMALL, "max_num_seqs": 3, "num_blocks": 9}
ALONE: dict[str, object] = {
    "requests": 4, "tokens": 12, "turns": 1, "max_num_seqs": 1, "prefix_caching": False, "token_budget": 128
}  # fmt: skip
BYTES_A_TOKEN = {"bf16": 23_040, "f16": 23_040, "q8_0": 12_240, "q4_0": 6_480}  # 11,520 elements
E = TypeVar("E", bound=ev.Event)


class Run:
    """A finished run: its trace, and the last view."""

    def __init__(self, model: Model, **knobs: object) -> None:
        producer, self.store = begin(model, "serving", **knobs)
        while producer.step():
            pass
        producer.close()
        self.view = last(self.store)
        self.text = get_kind("serving").plain(self.view)

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.store.records if isinstance(record.event, kind)]

    @property
    def answers(self) -> dict[str, list[int]]:
        """Tokens by conversation: what its second turn wrote follows the first turn's."""
        tokens: dict[str, list[int]] = {}
        for name in dict.fromkeys(event.request_id for event in self.events(ev.RequestArrived)):
            written = [e.token_ids for e in self.events(ev.TokensEmitted) if e.request_id == name]
            tokens.setdefault(name[0], []).extend(token for ids in written for token in ids)
        return tokens

    @property
    def admitted(self) -> list[str]:
        """Who joined, in order, each once."""
        return list(dict.fromkeys(event.request_id for event in self.events(ev.RequestScheduled)))

    @property
    def wastes(self) -> list[Waste]:
        return [kv_waste(view.serving) for view in views(self.store)]

    def shares(self, request_id: str, phase: str) -> list[int]:
        shares = [share for step in self.events(ev.StepScheduled) for share in step.scheduled]
        return [s.num_tokens for s in shares if (s.request_id, s.phase) == (request_id, phase)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUTOR_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def alone(model: Model) -> Run:
    """One after another, nothing shared, nothing chunked, each conversation in one turn."""
    return Run(model, **ALONE)


@pytest.fixture(scope="module")
def usual(model: Model) -> Run:
    """All mechanisms as they are by default, under pressure for slots and blocks."""
    return Run(model, **PRESSED)


def check(run: Run, alone: Run) -> None:
    """What holds for every setting that promises the same tokens."""
    assert run.answers == {name: alone.answers[name] for name in run.answers}
    assert sum(map(len, run.answers.values())) == 12 * len(run.answers)
    assert run.view.serving.num_used_blocks == 0
    cells = run.view.serving.cells
    assert cells is not None and cells.num_compared > 1000 and cells.num_mismatches == 0
    assert all(request.status == "finished" for request in run.view.serving.requests)


def test_the_usual_settings(usual: Run, alone: Run) -> None:
    """First come, first served; decodes first; chunks; sharing; recompute; blocks one by one."""
    check(usual, alone)
    m = usual.view.serving.mechanisms
    assert usual.admitted[:3] == ["a", "b", "c"] and usual.admitted.index("c") < usual.admitted.index("a2")
    assert max(len(usual.shares(name, "prefill")) for name in "abc") > 1, "no prompt was split"
    assert usual.view.serving.prefix_hits > 0 and not alone.view.serving.prefix_hits
    assert m.recomputes > 0 and m.num_lost > 0 and m.swaps_out == 0
    assert (m.num_drafted, m.saves, m.loads) == (0, 0, 0)
    assert not any(waste.reserved for waste in usual.wastes), "a block was taken before it was needed"
    assert max(waste.internal for waste in usual.wastes) <= 3 * 15, "more than the last block of each"
    assert not usual.view.note


def test_rows_and_seconds_add_up(usual: Run) -> None:
    m, executed = usual.view.serving.mechanisms, usual.events(ev.StepExecuted)
    assert m.num_rows == sum(step.num_tokens for step in executed)
    assert m.seconds == pytest.approx(sum(step.duration for step in executed)) and m.seconds > 0
    assert 0.5 < m.mean_use < 1.0
    assert f"{m.num_rows} tokens computed, 36 written" in usual.text


def joined(name: str) -> Callable[[Run], None]:
    def first(run: Run) -> None:
        assert run.admitted[0] == name

    return first


def shortest(run: Run) -> None:
    sizes = {event.request_id: event.num_prompt_tokens for event in run.events(ev.RequestArrived)}
    firsts = [name for name in run.admitted if len(name) == 1]
    assert [sizes[name] for name in firsts] == sorted(sizes[name] for name in firsts)
    assert firsts != sorted(firsts), "the order is that of arrival, so this shows nothing"


def longest_prefix(run: Run) -> None:
    """A second turn finds most of its text in the cache and overtakes a first turn that came before it."""
    second = next(name for name in run.admitted if len(name) == 2)
    assert run.admitted.index(second) < run.admitted.index("c")
    reasons = [e.reason for e in run.events(ev.RequestScheduled) if e.request_id == second]
    assert "tokens are cached, the most" in reasons[0]


def static(run: Run) -> None:
    """Once a member of a batch is done, nobody joins until all are."""
    batch, closing, waited = set[str](), False, 0
    for record in run.store.records:
        event = record.event
        if isinstance(event, ev.RequestScheduled):
            assert not closing, f"{event.request_id} joined a batch that was ending"
            batch.add(event.request_id)
        elif isinstance(event, ev.RequestFinished):
            batch.remove(event.request_id)
            closing = bool(batch)
            waited += closing
    assert waited, "all members ended together, so this shows nothing"
    assert any("a static batch takes nobody in" in step.reason for step in run.events(ev.StepScheduled))


def prefill_first(run: Run) -> None:
    """Without the prefix cache, so that prompts are long enough for more than one step."""
    assert prefills_before_decodes(run) > 0
    assert run.view.serving.prefix_hits == 0 and not run.events(ev.PrefixMatched)


def prefills_before_decodes(run: Run) -> int:
    """Steps in which a prompt that had begun before took budget ahead of a decoding request."""
    return sum(
        any(
            early.phase == "prefill" and early.start > 0 and late.phase == "decode"
            for early, late in zip(step.scheduled, step.scheduled[1:], strict=False)
        )
        for step in run.events(ev.StepScheduled)
    )


def not_chunked(run: Run) -> None:
    for request in run.view.serving.requests:
        assert len(run.shares(request.request_id, "prefill")) == 1 + request.num_preemptions
    assert "so the token budget is" in run.view.note


def swapped(run: Run) -> None:
    m = run.view.serving.mechanisms
    assert m.swaps_out == m.swaps_in > 0 and m.num_swapped > 0 and m.recomputes == 0
    assert any("restored from host memory" in event.reason for event in run.events(ev.RequestScheduled))
    assert f"{m.swaps_out} swapped out" in run.text


def contiguous(run: Run) -> None:
    assert max(waste.reserved for waste in run.wastes) >= 16
    for event in run.events(ev.BlocksAllocated):
        first = event.block_ids[0]
        assert event.block_ids == tuple(range(first, first + len(event.block_ids)))
    assert "shares nothing" in run.view.note and not run.view.serving.prefix_hits


def drafted(run: Run) -> None:
    m = run.view.serving.mechanisms
    assert m.num_accepted > 0 and m.num_rejected > 0
    assert f"{m.num_drafted} drafted, {m.num_accepted} accepted, {m.num_rejected} wasted" in run.text
    assert any("verifies" in s.reason for step in run.events(ev.StepScheduled) for s in step.scheduled)


def loaded(run: Run) -> None:
    """Saved in host memory, moved to disk for want of room, loaded from there."""
    m = run.view.serving.mechanisms
    assert m.saves == 6 and m.loads > 0 and m.num_loaded > 0
    moves = {(event.from_tier, event.to_tier) for event in run.events(ev.SequenceMoved)}
    assert moves >= {("", "warm"), ("warm", "cold")}
    for tier in m.tiers:
        assert tier.num_bytes >= tier.num_sequences * 60 * BYTES_A_TOKEN["bf16"]
    assert all("loading takes" in event.reason for event in run.events(ev.SequenceLoaded))


CASES: dict[str, tuple[dict[str, Any], Callable[[Run], None]]] = {
    "priority": ({"admission": "priority"}, joined("c")),
    "shortest": ({"admission": "shortest", "requests": 4, "max_num_seqs": 1}, shortest),
    "longest prefix": ({"admission": "longest_prefix"}, longest_prefix),
    "static": ({"batching": "static"}, static),
    "prefill first, no prefix cache": (
        {"order": "prefill_first", "prefix_caching": False, "num_blocks": 16}, prefill_first,
    ),
    "no chunks": ({"chunked_prefill": False}, not_chunked),
    "swap": ({**PRESSED, "preemption": "swap"}, swapped),
    "contiguous": ({"allocator": "contiguous"}, contiguous),
    "lookup": ({"speculation": "lookup"}, drafted),
    "tiers": ({"tiers": True, "warm_mib": 2}, loaded),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_switch_does_what_it_says_and_changes_no_token(model: Model, alone: Run, name: str) -> None:
    knobs, really_happened = CASES[name]
    run = Run(model, **{**SMALL, **knobs})
    check(run, alone)
    really_happened(run)


def test_decodes_come_first_when_asked(usual: Run) -> None:
    assert prefills_before_decodes(usual) == 0


def test_exact_mode_shares_nothing(model: Model, alone: Run) -> None:
    run = Run(model, **{**SMALL, "mode": "exact", "num_blocks": 16})
    assert run.answers == {name: alone.answers[name] for name in "abc"}
    assert (
        run.view.serving.num_used_blocks == 0
        and run.view.serving.cells is None
        and run.view.serving.prefix_hits == 0
    )
    assert "a cache of its own" in run.view.note and run.view.header.mode == "exact"


@pytest.mark.parametrize(
    ("kv_type", "codec"),
    [*((kv_type, "none") for kv_type in BYTES_A_TOKEN), ("f16", "turbo4"), ("q8_0", "turbo4")],
)
def test_bytes_of_saved_sequences_tell_type_and_codec(
    model: Model, cache: Path, kv_type: str, codec: str
) -> None:
    """One short request. A cache that is quantised already is kept as it is, whatever the codec."""
    run = Run(
        model, requests=1, turns=1, tokens=2, token_budget=128, tiers=True, kv_type=kv_type, codec=codec
    )
    (moved,) = run.events(ev.SequenceMoved)
    encoded = codec != "none" and kv_type in ("bf16", "f16")
    assert moved.encoding == (codec if encoded else "none")
    bytes_a_token = 11_520 * 4.25 / 8 if encoded else BYTES_A_TOKEN[kv_type]
    assert moved.num_bytes == pytest.approx(moved.num_tokens * bytes_a_token, rel=0.02)
    cells = run.view.serving.cells
    assert cells is not None and cells.num_mismatches == 0
    assert not list((cache / "tiers").glob("shelf-*")), "a folder of saved sequences was left behind"


def test_lossy_tiers_run_and_are_never_shared(model: Model) -> None:
    """No token is promised here; that what was loaded is not offered to others is."""
    run = Run(model, **{**SMALL, "tiers": True, "codec": "turbo2", "warm_mib": 1})
    loads = run.events(ev.SequenceLoaded)
    assert loads and all(request.status == "finished" for request in run.view.serving.requests)
    lossy, holders = {event.request_id for event in loads}, dict[int, str]()
    for record in run.store.records:
        event = record.event
        if isinstance(event, ev.BlocksAllocated):
            holders |= dict.fromkeys(event.block_ids, event.request_id)
        elif isinstance(event, ev.BlockStored):
            assert holders[event.block_id] not in lossy
