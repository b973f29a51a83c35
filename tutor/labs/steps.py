"""A producer written as one generator: each `yield` ends a step."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator

from tutor.labs.scenario import Knobs
from tutor.llama.messages import Abort, Submit
from tutor.llama.model import Model
from tutor.llama.reference import ReferenceModel
from tutor.llama.worker import CommandRefused
from tutor.trace.events import TraceHeader
from tutor.trace.store import Recorder, Sink


class StepProducer:
    """Base of the labs that are not a serving engine. Subclasses set `lab` and write `steps`."""

    lab: str
    mode = "exact"

    def __init__(self, model: Model, knobs: Knobs, sink: Sink) -> None:
        self.model = ReferenceModel(model)
        self.knobs = knobs
        self.header = TraceHeader(
            lab=self.lab,
            clock="wall",
            provenance="measured",
            model=model.path.stem,
            model_digest=self.model.digest,
            hardware=f"{platform.machine()}, {os.cpu_count()} cores",
            mode=self.mode,
            knobs=dict(knobs),
        )
        self.record = Recorder(sink, time.perf_counter)
        self._steps = self.steps()

    def steps(self) -> Iterator[None]:
        """Record what happens; yield at the end of every step but the last."""
        raise NotImplementedError

    def step(self) -> bool:
        self.record.step += 1
        return next(self._steps, False) is not False

    def handle(self, command: Submit | Abort) -> None:
        raise CommandRefused("This lab has no queue of requests.")

    def close(self) -> None:
        self._steps.close()  # type: ignore[attr-defined]
        self.model.close()
