"""One run: a file, an exercise's checks, a verdict. The judge calls `grade`; tests call it directly."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tutor import resources
from tutor.curriculum.errors import CourseError
from tutor.curriculum.packs import exercise_folders
from tutor.grading import failures, rpc
from tutor.grading.calls import Clock, GuestCalls, LearnerError
from tutor.grading.engine import Engine
from tutor.grading.errors import ExerciseError, JudgeError, ReplyError, SourceError
from tutor.grading.exercise import LANGUAGE_NAMES, PYTHON, Exercise
from tutor.grading.kit import Check, CheckFailed, Context
from tutor.grading.node import find_node
from tutor.grading.pool import GuestPool
from tutor.grading.process import Control, GuestGone, GuestTimeout
from tutor.grading.recorder import MoveRecorder
from tutor.grading.references import ExerciseReferences, Memory, references_dir
from tutor.grading.sentences import all_too_long, call_sentence, import_sentence
from tutor.grading.source import read_source
from tutor.grading.values import NotPlain
from tutor.grading.verdict import CheckResult, Status, Verdict, overall
from tutor.llama.errors import EngineError

# called with (name, index, total) when a check starts, and once more with its result when it is done
Emit = Callable[[str, int, int, CheckResult | None], None]


def load_checks(exercise: Exercise) -> tuple[Check, ...]:
    """The checks of check.py in their order; ExerciseError when it cannot be imported or has none."""
    path = exercise.check_file
    name = f"_check_{exercise.id.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ExerciseError(f"exercises/{exercise.id}/check.py: there is no such file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in check.py look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ExerciseError(f"exercises/{exercise.id}/check.py: {_place(error, path)}") from error
    checks = tuple(value for value in vars(module).values() if isinstance(value, Check))
    if not checks or len({item.name for item in checks}) != len(checks):
        raise ExerciseError(f"exercises/{exercise.id}/check.py: needs checks, each with its own name.")
    return checks


class Stopped(Exception):
    """The file as a whole cannot be checked: it does not import. Carries status, sentence and place."""

    def __init__(self, status: Status, sentence: str, where: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.where = where


class Run:
    """The state of one run: the guest in use, the clock and what was printed."""

    def __init__(
        self,
        exercise: Exercise,
        source: str,
        folder: Path,
        pool: GuestPool,
        control: Control | None,
        hidden: tuple[str, ...],
        runtime: str = "",
    ) -> None:
        limits = exercise.limits
        self.exercise = exercise
        self.clock = Clock(limits.call_seconds, limits.total_seconds)
        self.output = ""
        self._source = source
        self._folder = folder
        self._pool = pool
        self._control = control
        self._hidden = hidden
        self._runtime = runtime
        self._counts: Counter[str] = Counter()
        self._calls: GuestCalls | None = None

    def guest(self) -> GuestCalls:
        """A guest with the learner's file loaded: the one in use, or a fresh one if that is broken."""
        if self._calls is not None and self._calls.broken:
            self.end_guest()
        if self._calls is None:
            self._calls = GuestCalls(self._pool.take(), self.clock, self._counts, self._control)
            self._load(self._calls)
        return self._calls

    def _load(self, calls: GuestCalls) -> None:
        limits, name = self.exercise.limits, self.exercise.file
        message = rpc.Load(
            rpc.new_nonce(),
            name,
            self._source,
            self.exercise.entry,
            str(self._folder),
            limits.memory_mb,
            math.ceil(limits.total_seconds) + 1,
            self._hidden,
            self._runtime,
        )
        try:
            calls.load(message)
        except LearnerError as error:
            sentence = import_sentence(error, name, LANGUAGE_NAMES[self.exercise.language])
            raise Stopped("error", sentence, error.where) from error
        except GuestGone as error:
            raise Stopped("error", f"Your code {error} while {name} was imported.") from error
        except ReplyError as error:
            raise Stopped("error", f"{error}.") from error
        except GuestTimeout as error:
            sentence = f"{name} does not finish its import within {error.limit:g} s."
            raise Stopped("timeout", all_too_long(error) if error.total else sentence) from error

    def end_guest(self) -> None:
        """End the guest in use, if any, and keep what it printed."""
        if self._calls is not None:
            calls, self._calls = self._calls, None
            self._pool.give_back(calls.process)
            self.output += calls.process.output.text()

    def sentence(self, error: Exception) -> tuple[Status, str]:
        """Status and message for a call that brought no answer."""
        now = self._calls.now if self._calls is not None else "the start"
        if isinstance(error, GuestTimeout):
            if error.total:
                return "timeout", f"{all_too_long(error)} It was stopped in {now}."
            return "timeout", f"Your code did not answer within {error.limit:g} s ({now})."
        if isinstance(error, GuestGone):
            return "error", f"Your code {error} during {now}."
        return "error", f"{str(error).rstrip('.')}."


def grade(
    exercise: Exercise,
    path: Path,
    *,
    seed: int,
    engine: Engine,
    pool: GuestPool,
    memory: Memory,
    emit: Emit | None = None,
    control: Control | None = None,
    hidden: tuple[str, ...] = (),
) -> Verdict:
    """Grade the file at `path`. `hidden`: folders that it must not read, beside those of the graders.

    Raises JudgeError when there can be no verdict (no model; one that was named and is none ends the run
    before the first check), ExerciseError when check.py is broken, and whatever `control.on_readable` raises.
    A learner's mistake is never an exception.
    """
    started = time.perf_counter()
    try:
        engine.expect_named()
    except EngineError as error:
        raise JudgeError(str(error)) from error
    engine.watch.seconds = 0.0
    checks = load_checks(exercise)
    runtime = "" if exercise.language == PYTHON else find_node()[0]
    results: list[CheckResult] = []
    stopped: Stopped | None = None
    output, code_seconds = "", 0.0
    try:
        closed = (*hidden, *graders_folders(exercise))
        run = Run(exercise, read_source(path), path.resolve().parent, pool, control, closed, runtime)
    except SourceError as error:
        stopped = Stopped("error", str(error))
    else:
        try:
            references = ExerciseReferences(exercise, seed, engine.digest, memory)
            for index, item in enumerate(checks):
                if emit is not None:
                    emit(item.name, index, len(checks), None)
                results.append(_one(item, run, seed, engine, references))
                if emit is not None:
                    emit(item.name, index, len(checks), results[-1])
        except Stopped as error:
            stopped = error
        finally:
            run.end_guest()
        output, code_seconds = run.output, run.clock.code_seconds
    return Verdict(
        exercise=exercise.id,
        version=exercise.version,
        status=stopped.status if stopped else overall(tuple(results), len(checks)),
        checks=tuple(results),
        seed=seed,
        model=engine.name,
        message=stopped.sentence if stopped else "",
        seconds=time.perf_counter() - started,
        model_seconds=engine.watch.seconds,
        code_seconds=code_seconds,
        output=output,
    )


def graders_folders(exercise: Exercise) -> tuple[str, ...]:
    """Where solutions, checks and stored references are."""
    try:
        roots = {exercise.folder.parent, *exercise_folders()}
    except CourseError:  # a pack that is not there has nothing to hide
        roots = {exercise.folder.parent, resources.exercises_dir()}
    return (*(str(root) for root in sorted(roots)), str(references_dir()))


def _one(item: Check, run: Run, seed: int, engine: Engine, references: ExerciseReferences) -> CheckResult:
    """Run one check; every way in which it can end is a result, except a missing model."""
    started = time.perf_counter()
    guest = run.guest()
    context = Context(
        name=item.name,
        seed=seed,
        guest=guest,
        references=references,
        model=lambda: engine.model,
        folder=run.exercise.folder,
        file=run.exercise.file,
        language=run.exercise.language,
    )

    def result(status: Status, message: str = "", **more: object) -> CheckResult:
        seconds = time.perf_counter() - started
        fields = {**more, "name": item.name, "against": item.against, "seconds": seconds}
        return CheckResult(status=status, message=message, **fields)  # type: ignore[arg-type]

    try:
        item.run(context)
        guest.expect_silence()
    except CheckFailed as error:
        kept = ("expected", "actual", "where", "misconception", "trace", "step")
        said = {name: getattr(error, name) for name in kept}
        if error.recording is not None:
            error.recording.failed(error.where, error.expected, error.actual)
            said |= _stored(error.recording, run.exercise.id)
        return result("fail", error.sentence, **said)
    except LearnerError as error:
        status, sentence = call_sentence(error, guest.now)
        if error.kind == "NotImplementedError":  # nothing was answered yet, so nothing was misunderstood
            return result(status, sentence, where=error.where)
        return _explained(context, result, run, status, sentence, error.where)
    except (GuestGone, GuestTimeout, ReplyError) as error:
        status, sentence = run.sentence(error)
        return _explained(context, result, run, status, sentence, "")
    except EngineError as error:
        raise JudgeError(str(error)) from error
    except NotPlain as error:
        raise ExerciseError(f"exercises/{run.exercise.id}/check.py passes {error} to the code.") from error
    except Exception as error:  # noqa: BLE001 - check.py met an answer that it does not expect
        place = _place(error, run.exercise.check_file)
        return result("error", f"This check could not use what your code returned ({place}).")
    return result("pass")


def _stored(recording: MoveRecorder, exercise: str) -> dict[str, str | int]:
    """Path and step of a recording, for `tutor replay`."""
    path = failures.keep(exercise, recording.store)
    return {"trace": path, "step": failures.violating_step(recording.store)} if path else {}


def _explained(
    context: Context,
    result: Callable[..., CheckResult],
    run: Run,
    status: Status,
    sentence: str,
    where: str,
) -> CheckResult:
    """No answer: with the misconception that explains it and the recording up to it, if there are such."""
    said: dict[str, str | int] = {"where": where}
    if context.recording is not None:
        context.recording.failed("the call", "an answer", sentence.splitlines()[0])
        said |= _stored(context.recording, run.exercise.id)
    named = context.explanation()
    if named is None:
        return result(status, sentence, **said)
    return result(status, f"{named[1]}\n{sentence}", **said, misconception=named[0])


def _place(error: Exception, path: Path) -> str:
    """Kind, text and the last line of `path` in an exception's traceback."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    at = f", line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}: {error}{at}"
