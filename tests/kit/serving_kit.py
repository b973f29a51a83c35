"""Building and running the serving core over the modelled runner."""

from __future__ import annotations

from fake_runner import FakeRunner

from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.request import Request
from tutor.serving.speculator import Speculator
from tutor.serving.tiering import Tiering
from tutor.trace.events import TraceHeader, TraceRecord
from tutor.trace.store import Recorder, TraceStore

STOP = frozenset({7})


def build(
    config: EngineConfig, speculator: Speculator | None = None, tiering: Tiering | None = None
) -> tuple[EngineCore, FakeRunner, TraceStore]:
    runner = FakeRunner(config.num_blocks * config.block_size)
    runner.archive = tiering.keep if tiering is not None else None
    store = TraceStore(
        TraceHeader(
            lab="test", clock="virtual", provenance="simulated", model="hash",
            block_size=config.block_size, num_blocks=config.num_blocks, max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )
    )  # fmt: skip
    return EngineCore(config, runner, Recorder(store.append, runner.now), speculator, tiering), runner, store


def assert_ledger_equals_cells(core: EngineCore, runner: FakeRunner) -> None:
    ledger = sorted((c.position, c.sequences) for c in core.scheduler.kv.ledger().values())
    cells = sorted((position, tuple(sorted(owners))) for position, _, owners in runner.cells.values())
    assert ledger == cells


def run_all(config: EngineConfig, requests: list[Request]) -> tuple[EngineCore, FakeRunner, TraceStore]:
    core, runner, store = build(config)
    for request in requests:
        core.add_request(request)
    while core.has_work:
        core.step()
    return core, runner, store


def events(store: TraceStore, name: str) -> list[TraceRecord]:
    return [record for record in store.records if type(record.event).__name__ == name]


def workload(n: int = 6, prompt: int = 20, output: int = 12) -> list[Request]:
    system = list(range(16))
    return [
        Request(f"r{i}", system + [20 + i] * (prompt - 16), output + 4 * i, label=chr(65 + i))
        for i in range(n)
    ]
