"""The engine's loop: schedule, execute, update."""

from __future__ import annotations

from tutor.serving.booking import Bookkeeper
from tutor.serving.config import EngineConfig
from tutor.serving.outputs import ModelRunnerOutput
from tutor.serving.request import Request
from tutor.serving.runner import ModelRunner
from tutor.serving.scheduler import Scheduler
from tutor.serving.speculator import Speculator
from tutor.serving.tiering import Tiering
from tutor.serving.tracing import Tracer
from tutor.trace import events as ev
from tutor.trace.store import Recorder


class EngineCore:
    """Drives a scheduler and a model runner; one `step()` is one forward pass over a mixed batch.

    Without a recorder nothing is recorded. `tracer.moved` is what a TierStore tells its moves to.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: ModelRunner,
        recorder: Recorder | None = None,
        speculator: Speculator | None = None,
        tiering: Tiering | None = None,
    ) -> None:
        self.config = config
        self.runner = runner
        self._record = recorder
        self.tracer = Tracer(recorder)
        self.scheduler = Scheduler(config, self.tracer, speculator, tiering)
        self._books = Bookkeeper(self.scheduler, self.tracer, runner.piece)

    def add_request(self, request: Request) -> None:
        self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """Stop a request; its cells are free when this returns."""
        self.scheduler.abort(request_id)
        self.runner.apply(self.scheduler.kv.take_operations())

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work

    def step(self) -> ModelRunnerOutput | None:
        """Run one step; None when there is nothing to do."""
        if not self.has_work:
            return None
        if self._record:
            self._record.step += 1
        output = self.scheduler.schedule()
        if output.scheduled:
            result = self.runner.execute(output)
        else:
            self.runner.apply(output.operations)
            result = ModelRunnerOutput({}, 0.0)
        if self._record:
            self._record(ev.StepExecuted(result.duration, output.num_tokens))
        self._books.update(output, result)
        self.runner.apply(self.scheduler.kv.take_operations())
        return result
