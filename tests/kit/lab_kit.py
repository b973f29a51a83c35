"""Running a lab on the real model in the test's own process, and reading what it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tutor.labs.child import make_producer
from tutor.labs.registry import get_kind
from tutor.llama.model import Model
from tutor.llama.worker import Producer
from tutor.trace.playback import Playback
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView
from tutor.ui.widgets.panels.base import Picture


def begin(model: Model, kind_id: str, /, **given: object) -> tuple[Producer, TraceStore]:
    """A lab before its first step, with these knobs, and the store that it records into.

    Do not close the producer of a lab that is a `StepProducer`: that frees the model, which tests share.
    """
    kind = get_kind(kind_id)
    stores: list[TraceStore] = []
    producer = make_producer(kind, model, kind.settings(given), lambda record: stores[0].append(record))
    stores.append(TraceStore(producer.header))
    return producer, stores[0]


def record(model: Model, kind_id: str, /, *, steps: int | None = None, **given: object) -> TraceStore:
    """The recording of a lab that ran to its end, or for so many steps. Its plain twin says something."""
    producer, store = begin(model, kind_id, **given)
    while steps != 0 and producer.step():
        steps = None if steps is None else steps - 1
    assert get_kind(kind_id).plain(last(store))
    return store


def last(store: TraceStore) -> LabView:
    """What the screen shows at the end."""
    return Playback(store).view


def at(store: TraceStore, step: int) -> LabView:
    """What the screen shows after that step."""
    playback = Playback(store, follow=False)
    playback.seek(step)
    return playback.view


def views(store: TraceStore) -> Iterator[LabView]:
    """What the screen shows before the first step, and after each."""
    playback = Playback(store, follow=False)
    for step in range(store.last_step + 1):
        playback.seek(step)
        yield playback.view


def lines(picture: Picture) -> list[str]:
    """A panel's lines without their styles."""
    return ["".join(run for run, _ in line) for line in picture.lines]


def text(picture: Picture) -> str:
    """A panel's lines without styles and trailing blanks, then its note."""
    return "\n".join(line.rstrip() for line in lines(picture)) + "\n" + picture.note


@contextmanager
def cpu_clock(module: str) -> Iterator[None]:
    """The module measures on the process's own CPU clock, which stands still while others have the core."""
    clocks = SimpleNamespace(perf_counter=time.process_time, time=time.time)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.time", clocks)
        yield
