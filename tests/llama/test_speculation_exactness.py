"""Speculation on the real model in exact mode: the text of greedy decoding, whatever is drafted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tutor.llama.reference import ReferenceModel
from tutor.llama.sampler import greedy
from tutor.llama.session import Session
from tutor.llama.verify import verify_choices, verify_greedy
from tutor.serving.draft_length import expected_tokens
from tutor.serving.request import Request
from tutor.serving.speculative import (
    CallbackDrafter,
    Drafter,
    OracleDrafter,
    PromptLookupDrafter,
    SpeculationStats,
)

PROMPT = "11, 21, 31, 41, 51, 61, 71,"
COUNT = 40
K = 4


@dataclass(frozen=True)
class Run:
    output: list[int]
    passes: list[tuple[int, int]]  # (drafted, accepted)
    stats: SpeculationStats
    held: int  # positions in the cache at the end


@dataclass
class Bench:
    session: Session
    prompt: list[int]
    answer: list[int]  # greedy, one token a pass
    vocabulary: int

    def speculate(
        self, drafter: Drafter, k: int = K, count: int = COUNT, stop: frozenset[int] = frozenset()
    ) -> Run:
        """Draft, verify, roll back, until `count` tokens or a token of `stop`."""
        session, stats, passes = self.session, SpeculationStats(), list[tuple[int, int]]()
        session.seq_rm(0)
        request = Request("r", list(self.prompt), count, stop_token_ids=stop)
        computed, ended = 0, False
        while not ended:
            known = request.token_ids
            limit = min(k, count - request.num_output_tokens - 1) if request.num_output_tokens else 0
            drafts = drafter.propose(request, limit)
            assert len(drafts) <= limit
            entries = [*known[computed:], *drafts]
            wanted = [i >= len(entries) - len(drafts) - 1 for i in range(len(entries))]
            places = range(computed, computed + len(entries))
            answer = session.decode(entries, places, [0] * len(entries), wanted)
            assert session.pos_max(0) == len(known) + len(drafts) - 1
            emitted = verify_greedy([row for row in answer if row is not None], drafts)
            computed = len(known) + len(emitted) - 1
            session.seq_rm(0, computed)  # K and V of rejected drafts
            taken = 0
            for token in emitted:
                _, finished = request.append(token, b"")
                taken += 1
                if finished is not None:
                    ended = True
                    break
            stats.record(len(drafts), len(emitted) - 1, taken)
            passes.append((len(drafts), len(emitted) - 1))
            if not ended:
                assert session.pos_max(0) == len(request.token_ids) - 2 == computed - 1
        stats.check_integrity()
        return Run(request.output_token_ids, passes, stats, session.pos_max(0) + 1)

    def oracle(self, alpha: float, seed: int = 0) -> OracleDrafter:
        return OracleDrafter({"r": self.answer}, alpha, self.vocabulary, seed)


@pytest.fixture(scope="module")
def bench(reference: ReferenceModel) -> Iterator[Bench]:
    prompt = reference.tokenize(PROMPT)
    answer = reference.greedy(prompt, COUNT, stop_at_eog=False)
    with reference.session(512) as session:
        yield Bench(session, prompt, answer, reference.dims.n_vocab)


def passes_by_hand(answer: list[int], drafter: OracleDrafter, count: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of each pass if the model is exact: from the oracle's coins, without the model."""
    coins = drafter.propose(Request("r", [0], COUNT), count)
    passes, done = [(0, 0)], 1
    while done < count:
        drafted = min(K, count - done - 1)
        accepted = next((j for j in range(drafted) if coins[done + j] != answer[done + j]), drafted)
        passes.append((drafted, accepted))
        done += accepted + 1
    return passes


@pytest.mark.parametrize(
    ("alpha", "count", "tolerance"), [(0.0, 12, 0.0), (0.5, COUNT, 0.85), (0.9, COUNT, 1.4), (1.0, 22, 0.0)]
)
def test_the_oracle_at_every_setting(bench: Bench, alpha: float, count: int, tolerance: float) -> None:
    """Same text; passes as the coins foretell; tokens a pass near (1 - alpha^5) / (1 - alpha).

    The mean is that of the passes with all K drafts. The tolerance is three standard deviations of a mean
    over so few passes (about 19 at 0.5, 9 at 0.9); at 0 and 1 nothing is left to chance.
    """
    drafter = bench.oracle(alpha)
    run = bench.speculate(drafter, count=count)
    assert run.output == bench.answer[:count]
    assert run.passes == passes_by_hand(bench.answer, drafter, count)
    full = [accepted + 1 for drafted, accepted in run.passes if drafted == K]
    assert abs(sum(full) / len(full) - expected_tokens(alpha, K)) <= tolerance
    assert run.held == len(bench.prompt) + count - 1  # the newest token has no KV


def test_prompt_lookup(bench: Bench) -> None:
    run = bench.speculate(PromptLookupDrafter(3, 1), count=28)
    assert run.output == bench.answer[:28]
    assert run.stats.accepted > 0
    assert run.stats.passes < 28 * 0.7
    assert run.held == len(bench.prompt) + 27


def test_drafts_that_are_always_wrong(bench: Bench) -> None:
    def contrary(history: object, k: int) -> list[int]:
        assert isinstance(history, list)
        place = len(history) - len(bench.prompt)
        return [(token + 1) % bench.vocabulary for token in bench.answer[place : place + k]]

    run = bench.speculate(CallbackDrafter(contrary, bench.vocabulary), k=7, count=12)
    assert run.output == bench.answer[:12]
    assert (run.stats.accepted, run.stats.passes, run.stats.emitted) == (0, 12, 12)
    assert run.stats.wasted == run.stats.drafted == 4 * 7 + sum(range(7))
    assert run.held == len(bench.prompt) + 11


def test_no_drafts(bench: Bench) -> None:
    run = bench.speculate(CallbackDrafter(lambda history, k: [], bench.vocabulary), count=12)
    assert run.output == bench.answer[:12]
    assert (run.stats.drafted, run.stats.passes, run.stats.mean_acceptance_length) == (0, 12, 1.0)


def test_the_end_comes_inside_accepted_drafts(bench: Bench) -> None:
    """A stop token among the drafts: what was accepted behind it is not emitted, and counts as wasted."""
    place = next(
        i for i in range(2, COUNT) if i % (K + 1) in (1, 2, 3) and bench.answer[i] not in bench.answer[:i]
    )
    run = bench.speculate(bench.oracle(1.0), stop=frozenset({bench.answer[place]}))
    assert run.output == bench.answer[: place + 1]
    assert run.stats.emitted == place + 1
    assert run.stats.wasted == run.stats.drafted + run.stats.passes - run.stats.emitted > 0


def test_removed_drafts_leave_no_trace(bench: Bench, reference: ReferenceModel) -> None:
    """After a rollback the next logits are, bit for bit, those of a cache that never saw the drafts."""
    session, prompt = bench.session, bench.prompt
    session.seq_rm(0)
    session.decode(prompt, range(len(prompt)), [0] * len(prompt), [False] * len(prompt))
    session.decode([1, 2, 3], range(len(prompt), len(prompt) + 3), [0] * 3, [False] * 3)
    session.seq_rm(0, len(prompt))
    assert session.pos_max(0) == len(prompt) - 1
    (after,) = session.decode([bench.answer[0]], [len(prompt)], [0], [True])
    assert after is not None
    assert (after == reference.next_logits([*prompt, bench.answer[0]])).all()
    choose = verify_choices(lambda i: greedy(after), [])
    assert choose == [bench.answer[1]]
