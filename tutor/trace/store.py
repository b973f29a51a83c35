"""The records of one run in memory, indexed by step."""

from __future__ import annotations

from collections.abc import Callable

from tutor.trace.events import AnyEvent, TraceHeader, TraceRecord

Sink = Callable[[TraceRecord], None]


class TraceStore:
    """An append-only list of records. Step s ends before record index `step_end(s)`."""

    def __init__(self, header: TraceHeader) -> None:
        self.header = header
        self.warnings: list[str] = []
        self._records: list[TraceRecord] = []
        self._ends: list[int] = [0]

    @property
    def records(self) -> tuple[TraceRecord, ...]:
        return tuple(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> TraceRecord:
        return self._records[index]

    @property
    def last_step(self) -> int:
        """The newest step number; step 0 is what happened before the engine's first step."""
        return len(self._ends) - 1

    def step_end(self, step: int) -> int:
        """How many records belong to steps 0..step."""
        return self._ends[step]

    def append(self, record: TraceRecord) -> None:
        """Steps never go back; a gap in `seq` is a programming error of the producer."""
        if record.seq != len(self._records):
            raise ValueError(f"record {record.seq} does not follow {len(self._records) - 1}")
        if record.step < self.last_step:
            raise ValueError(f"record {record.seq} goes back to step {record.step}")
        self._records.append(record)
        while self.last_step < record.step:
            self._ends.append(len(self._records) - 1)
        self._ends[-1] = len(self._records)


class Recorder:
    """Stamps a producer's events with sequence number, time and step, and hands them to a sink."""

    def __init__(self, sink: Sink, now: Callable[[], float]) -> None:
        self._sink = sink
        self._now = now
        self._start = now()
        self._seq = 0
        self.step = 0

    def __call__(self, event: AnyEvent) -> None:
        self._sink(TraceRecord(self._seq, self._now() - self._start, self.step, event))
        self._seq += 1
