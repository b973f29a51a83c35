"""llama.cpp's cell map: read from its own log, and every kind of disagreement is found."""

from __future__ import annotations

import dataclasses

import pytest

from tutor.llama import kv, library
from tutor.llama.batch import Batch
from tutor.llama.cells import CellWatcher, parse, split_owners
from tutor.llama.context import Context, ContextConfig
from tutor.llama.engine import LlamaEngine
from tutor.llama.model import Model
from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.ledger import CellOwners
from tutor.trace.store import TraceStore


def read_map(context: Context, batch: Batch, slot: int) -> list[str]:
    batch.clear()
    batch.add(9, context.pos_max(slot) + 1, (slot,), True)
    with library.captured_log() as lines:
        context.decode(batch)
    return lines


def test_the_map_shows_owners_positions_and_spans(model: Model) -> None:
    config = ContextConfig(mode="shared", n_ctx=256, n_seq_max=13, n_batch=32, n_ubatch=32, log_cells=True)
    with Context(model, config) as context:
        batch = Batch(32)
        batch.add_run(list(range(100, 120)), 0, 0, True)
        context.decode(batch)
        kv.seq_cp(context, 0, 12, 4, 8)
        kv.seq_cp(context, 0, 2, 0, 4)
        kv.seq_rm(context, 0, 6)
        reading = parse(read_map(context, batch, 2))
    assert reading is not None
    assert reading.positions[:10] == (0, 1, 2, 3, 4, 5, 6, 7, -1, -1) and len(reading.positions) == 256
    assert reading.used == 8
    assert reading.spans == {0: (0, 5), 2: (0, 3), 12: (4, 7)}
    marks = split_owners(reading.owners, reading.positions, [""] * 256, reading.spans)
    assert marks[:9] == ["M", "M", "M", "M", "M", "M", "12", "12", ""]


def test_no_map_in_the_log() -> None:
    assert parse(["decode: something else", ""]) is None


@pytest.mark.parametrize(
    ("owners", "expected", "marks"),
    [
        ("1112.", ["1", "1", "12"], ["1", "1", "12", ""]),
        ("1112.", ["11", "1", "2"], ["11", "1", "2", ""]),
        ("1112.", ["3", "3", "3"], ["1", "1", "12", ""]),
        ("M10M.", ["M", "10", "M"], ["M", "10", "M", ""]),
        ("12x4.", ["1", "2", "4"], ["?", "?", "?", ""]),
    ],
)
def test_two_digit_ids_are_cut_as_the_ledger_expects_if_that_fits(
    owners: str, expected: list[str], marks: list[str]
) -> None:
    assert split_owners(owners, [0, 1, 2, -1], [*expected, ""], (1, 2, 10, 11, 12)) == marks


class Run:
    """An engine over golden prompts whose ledger can be falsified."""

    def __init__(self, model: Model, **config: int) -> None:
        settings = {
            "max_num_seqs": 3,
            "max_num_batched_tokens": 24,
            "block_size": 8,
            "num_blocks": 30,
        } | config
        self.engine = LlamaEngine(model, EngineConfig(**settings), mode="shared", watch_cells=True)
        self.store = TraceStore(self.engine.header("test"))
        self.core: EngineCore = self.engine.start(self.store.append)
        shared = model.tokenize("Count on, in steps of one, without any words: ")
        for i in range(4):
            tokens = shared + model.tokenize(f"{i}1, {i}2, {i}3,")
            self.core.add_request(self.engine.request(f"r{i}", "ABCD"[i], tokens, 12, ignore_eos=True))

    @property
    def watcher(self) -> CellWatcher:
        assert self.engine.watcher is not None
        return self.engine.watcher

    def finish(self) -> None:
        while self.core.has_work:
            self.core.step()
        self.engine.close()


@pytest.mark.parametrize("config", [{}, {"num_blocks": 10}, {"block_size": 1, "num_blocks": 100}])
def test_ledger_and_cells_agree_on_every_step(model: Model, config: dict[str, int]) -> None:
    run = Run(model, **config)
    run.finish()
    assert run.watcher.num_mismatches == 0 and run.watcher.num_compared > 1000
    preempted = any(type(r.event).__name__ == "RequestPreempted" for r in run.store.records)
    assert preempted == (config.get("num_blocks") == 10)


@pytest.mark.parametrize("fault", ["owner", "position", "lost", "extra"])
def test_a_wrong_ledger_is_noticed(model: Model, fault: str) -> None:
    run = Run(model)
    for _ in range(6):
        run.core.step()
    assert run.watcher.num_mismatches == 0
    true = run.core.scheduler.kv.ledger

    def falsified() -> dict[tuple[int, int], CellOwners]:
        ledger = true()
        key = next(iter(ledger))
        match fault:
            case "owner":
                ledger[key] = dataclasses.replace(ledger[key], sequences=(2,))
            case "position":
                ledger[key] = dataclasses.replace(ledger[key], position=99)
            case "lost":
                del ledger[key]
            case "extra":
                ledger[(29, 7)] = CellOwners(50, (1,))
        return ledger

    run.watcher._ledger = falsified
    run.core.step()
    assert run.watcher.num_mismatches > 0
    run.finish()


@pytest.mark.parametrize("deed", ["copy", "remove"])
def test_an_operation_behind_the_ledgers_back_is_noticed(model: Model, deed: str) -> None:
    run = Run(model)
    for _ in range(6):
        run.core.step()
    assert run.watcher.num_mismatches == 0
    unused = run.engine.config.num_sequences - 1 - 20
    kv.seq_cp(run.engine.context, 0, unused, 0, 8)
    if deed == "remove":
        kv.seq_rm(run.engine.context, unused, 4)
    run.core.step()
    assert run.watcher.num_mismatches > 0
    assert any(
        f"sequence {unused}:" in mismatch
        for record in run.store.records
        if type(record.event).__name__ == "CellMapRead"
        for mismatch in record.event.mismatches
    )
    run.engine.close()
