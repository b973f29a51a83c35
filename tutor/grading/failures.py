"""Traces of failed checks: written by the judge, kept in small number, opened by `tutor replay --failure`."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path

from tutor import resources
from tutor.trace.codec import TraceError, write_trace
from tutor.trace.events import TablesCompared
from tutor.trace.store import TraceStore

KEPT = 20


def failures_dir() -> Path:
    """The folder of these traces, among the learner's own data."""
    return resources.data_dir() / "failures"


def keep(exercise: str, store: TraceStore) -> str:
    """Store a trace and drop the oldest; its path, or "" where none can be written: a replay is an extra."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    path = failures_dir() / f"{exercise}.{stamp}.jsonl"
    try:
        write_trace(path, store)
    except TraceError:
        return ""
    for old in _all()[KEPT:]:
        with contextlib.suppress(OSError):
            old.unlink()
    return str(path)


def latest(exercise: str | None = None) -> Path | None:
    """The newest trace of this exercise, or of any."""
    return next((path for path in _all() if exercise in (None, path.name.split(".")[0])), None)


def _all() -> list[Path]:
    """Newest first: the name holds the time."""
    found = failures_dir().glob("*.jsonl") if failures_dir().is_dir() else ()
    return sorted(found, key=lambda path: path.name.partition(".")[2], reverse=True)


def violating_step(store: TraceStore) -> int:
    """The first step at which a comparison did not hold; the last one if all did."""
    for record in store.records:
        if isinstance(record.event, TablesCompared) and not record.event.holds:
            return record.step
    return store.last_step
