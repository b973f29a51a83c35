"""The judge: `python -m tutor.grading.judge`, a child process with the model, the checks and the verdict.

It takes RunCheck and Cancel frames on stdin and writes progress and verdicts to stdout, and ends when stdin
is closed. Nothing else can reach its stdout: the file descriptor is taken away before anything is imported
that might print. It must not be started from a thread, since the end of that thread would end its guests.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import deque
from pathlib import Path

import msgspec

from tutor.grading import folders, messages, sandbox
from tutor.grading.engine import Engine
from tutor.grading.errors import GradingError
from tutor.grading.exercise import Exercise, find_exercise
from tutor.grading.messages import Cancel, CheckDone, CheckStarted, Finished, Ready, Refused, RunCheck
from tutor.grading.pool import GuestPool
from tutor.grading.references import Memory
from tutor.grading.rpc import write_all
from tutor.grading.run import grade
from tutor.grading.verdict import CheckResult
from tutor.llama.errors import EngineError


class Cancelled(BaseException):
    """The client asked to stop the run.

    Not an Exception: it comes up inside check.py's code, whose own mistakes are caught as Exception.
    """


class ClientGone(BaseException):
    """The client closed its end: there is nobody left to judge for. Not an Exception, as Cancelled."""


class Pipe:
    """The client's side: requests in, frames out. During a run it is watched as the run's `Control`."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.current: int | None = None
        self._incoming = incoming
        self._outgoing = outgoing
        self._data = bytearray()
        self._waiting: deque[RunCheck] = deque()

    def fileno(self) -> int:
        return self._incoming

    def on_readable(self) -> None:
        """Take in what is there. Raises Cancelled for the current run, ClientGone at end of file."""
        data = os.read(self._incoming, 1 << 16)
        if not data:
            raise ClientGone
        self._data += data
        self._sort()

    def _sort(self) -> None:
        """Put whole requests in line. A Cancel of the current run raises and leaves the rest for later."""
        while (body := messages.take_frame(self._data)) is not None:
            request = messages.requests.decode(body)
            if isinstance(request, RunCheck):
                self._waiting.append(request)
            elif isinstance(request, Cancel) and request.run == self.current:
                raise Cancelled

    def next_request(self) -> RunCheck:
        """Block until there is a run to do."""
        self._sort()  # a run that was cancelled leaves what came behind the Cancel
        while not self._waiting:
            self.on_readable()
        return self._waiting.popleft()

    def send(self, message: messages.FromJudge) -> None:
        write_all(self._outgoing, messages.frame(message))


class Judge:
    """Serves one client until it is gone."""

    def __init__(self, pipe: Pipe, engine: Engine, pool: GuestPool) -> None:
        self._pipe = pipe
        self._engine = engine
        self._pool = pool
        self._memory = Memory()

    def serve(self, warm: bool) -> None:
        """Take requests one after another. warm: load the model before the first one comes."""
        self._pool.refill()
        self._pipe.send(Ready())
        if warm:
            self._load_ahead()
        try:
            while True:
                self._run(self._pipe.next_request())
        except (ClientGone, BrokenPipeError):
            return
        finally:
            self._pool.close()

    def _load_ahead(self) -> None:
        try:
            self._engine.load()
        except EngineError:
            return  # the check that needs the model reports it

    def _run(self, request: RunCheck) -> None:
        number, self._pipe.current = request.run, request.run

        def emit(name: str, index: int, total: int, result: CheckResult | None) -> None:
            if result is None:
                self._pipe.send(CheckStarted(number, name, index, total))
            else:
                self._pipe.send(CheckDone(number, result, index, total))

        try:
            verdict = grade(
                _exercise(request),
                Path(request.path),
                seed=request.seed,
                engine=self._engine,
                pool=self._pool,
                memory=self._memory,
                emit=emit,
                control=self._pipe,
                hidden=request.hidden,
            )
        except Cancelled:
            self._pipe.send(Refused(number, "The check was stopped.", cancelled=True))
        except (GradingError, EngineError) as error:
            self._pipe.send(Refused(number, str(error)))
        else:
            self._pipe.send(Finished(number, verdict))
        finally:
            self._pipe.current = None
        self._pool.refill()


def _exercise(request: RunCheck) -> Exercise:
    """The exercise of a request in its file's language, with the request's own limit of a call if any."""
    found = find_exercise(request.exercise, Path(request.exercises) if request.exercises else None)
    exercise = found.for_file(Path(request.path))
    if request.call_seconds is None:
        return exercise
    limits = msgspec.structs.replace(exercise.limits, call_seconds=request.call_seconds)
    return msgspec.structs.replace(exercise, limits=limits)


def main(argv: list[str] | None = None) -> None:
    """Entry point of `python -m tutor.grading.judge`."""
    parser = argparse.ArgumentParser(prog="python -m tutor.grading.judge", description=__doc__)
    parser.add_argument("--model", help="a GGUF file instead of the bundled model")
    parser.add_argument("--scratch", type=Path, help="folder for the guests' working folders; removed")
    parser.add_argument("--warm", action="store_true", help="load the model at once")
    parser.add_argument("--no-namespaces", action="store_true", help="do not try to isolate guests further")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client
    pipe = _take_over_stdio()
    sandbox.adopt_orphans()
    pool = GuestPool(not options.no_namespaces, options.scratch, sweep=True)
    try:
        Judge(pipe, Engine(options.model), pool).serve(options.warm)
    finally:
        if options.scratch is not None:  # the client removes it as well, but a killed client cannot
            folders.remove(options.scratch)


def _take_over_stdio() -> Pipe:
    """Keep stdin and stdout for frames; whatever prints or reads by accident gets stderr and nothing."""
    pipe = Pipe(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return pipe


if __name__ == "__main__":
    main()
