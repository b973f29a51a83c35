"""The caller's side of the judge: one warm judge for the TUI and `watch`, one run for the command line.

This module imports neither NumPy nor llama.cpp.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from pathlib import Path

from tutor.grading import folders, messages
from tutor.grading.errors import JudgeError
from tutor.grading.memory import KEEP_MEMORY
from tutor.grading.messages import CheckDone, CheckStarted, Finished, FromJudge, Ready, Refused
from tutor.grading.verdict import CheckResult, Verdict

DEFAULT_SEED = 1
START_SECONDS = 60.0
SILENCE_SECONDS = 300.0  # without any message; a check's own limits are far below
_KEPT_WORDS = 4096

Event = CheckStarted | CheckDone | Finished


class CheckCancelled(JudgeError):
    """The run was stopped on request."""


class JudgeClient:
    """One judge process, started on first use and started again if it ends.

    model: a GGUF file or None; exercises: another exercises folder; warm: load the model ahead of the first
    check; namespaces: False keeps guests out of namespaces (for tests). One check at a time: a second one
    waits for the first.
    """

    def __init__(
        self,
        model: str | None = None,
        exercises: Path | None = None,
        warm: bool = True,
        namespaces: bool = True,
    ) -> None:
        self._arguments = ["--warm"] if warm else []
        self._arguments += [] if namespaces else ["--no-namespaces"]
        self._arguments += ["--model", model] if model else []
        self._exercises = str(exercises.resolve()) if exercises else ""
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._scratch: str | None = None
        self._words = bytearray()
        self._body: int | None = (
            None  # length of the frame whose header was read, should a reader be cancelled
        )
        self._last_run = 0
        self._running: int | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The judge's process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the judge unless it runs; JudgeError when it does not come up."""
        if self.pid is not None:
            return
        await self._end()
        self._words.clear()
        self._body = None
        self._scratch = tempfile.mkdtemp(prefix="inference-tutor-")
        root = str(Path(__file__).resolve().parents[2])
        starter = f"import sys; sys.path.insert(0, {root!r}); from tutor.grading.judge import main; main()"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a random.py in the learner's folder must not replace the standard library's
            "-c",
            starter,
            *self._arguments,
            "--scratch",
            self._scratch,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**KEEP_MEMORY, **os.environ},
        )
        self._listener = asyncio.create_task(self._listen(self._process))
        message = await self._receive(START_SECONDS)
        if not isinstance(message, Ready):
            raise JudgeError("The judge did not start as expected; try again.")

    async def check(
        self,
        exercise: str,
        path: Path,
        seed: int = DEFAULT_SEED,
        call_seconds: float | None = None,
        *,
        exercises: Path | None = None,
        hidden: Iterable[Path] = (),
    ) -> AsyncGenerator[Event, None]:
        """Grade a file: CheckStarted and CheckDone for each check, then Finished with the verdict.

        call_seconds: a limit of one call instead of the exercise's own. exercises: another folder of
        exercises for this run. hidden: folders that the file must not read, such as other submissions.

        Raises JudgeError when there is no verdict (no model, judge ended), CheckCancelled after `cancel`.
        Leaving the loop early stops the run.
        """
        async with self._turn:
            await self.start()
            self._last_run += 1
            number = self._running = self._last_run
            root = str(exercises.resolve()) if exercises else self._exercises
            closed = tuple(str(folder.resolve()) for folder in hidden)
            request = messages.RunCheck(
                number, exercise, str(path.absolute()), seed, root, call_seconds, closed
            )
            try:
                await self._send(request)
                while True:
                    message = await self._receive(SILENCE_SECONDS)
                    if isinstance(message, Ready) or message.run != number:
                        continue
                    if isinstance(message, (Finished, Refused)):
                        self._running = None
                    if isinstance(message, Refused):
                        raise (CheckCancelled if message.cancelled else JudgeError)(message.sentence)
                    yield message
                    if isinstance(message, Finished):
                        return
            finally:
                self._stop_running()

    async def verdict(
        self,
        exercise: str,
        path: Path,
        seed: int = DEFAULT_SEED,
        call_seconds: float | None = None,
        *,
        exercises: Path | None = None,
        hidden: Iterable[Path] = (),
    ) -> Verdict:
        """Grade a file and return only the verdict; arguments and exceptions as for `check`."""
        run = self.check(exercise, path, seed, call_seconds, exercises=exercises, hidden=hidden)
        async with aclosing(run) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return event.verdict
        raise JudgeError("The judge ended without a verdict.")

    def cancel(self) -> None:
        """Stop the run that is going on, if any; its `check` raises CheckCancelled."""
        if self._running is not None and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(messages.frame(messages.Cancel(self._running)))

    def _stop_running(self) -> None:
        if self.pid is not None:
            self.cancel()
        self._running = None

    async def close(self) -> None:
        """End the judge and everything that it started."""
        await self._end()

    async def _send(self, message: messages.ToJudge) -> None:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(messages.frame(message))
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            await self._lost()

    async def _receive(self, seconds: float) -> FromJudge:
        process = self._process
        assert process is not None and process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                if self._body is None:
                    header = await process.stdout.readexactly(messages.HEADER)
                    self._body = int.from_bytes(header, "big")
                body = await process.stdout.readexactly(self._body)
                self._body = None
                return messages.replies.decode(body)
        except asyncio.IncompleteReadError:
            await self._lost()
        except TimeoutError:
            await self._end()
            raise JudgeError(
                f"The judge has been silent for {seconds:g} s and was ended; try again."
            ) from None
        raise AssertionError("unreachable")

    async def _lost(self) -> None:
        """The judge ended by itself: say how. Always raises."""
        process = self._process
        code = await process.wait() if process is not None else 0
        await self._end()
        lines = self._words.decode("utf-8", "replace").strip().splitlines()
        last = f" Its last words: {lines[-1]}" if lines else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise JudgeError(f"The judge ended without a verdict ({how}); the next check starts it again.{last}")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the end of what the judge writes to stderr."""
        assert process.stderr is not None
        while data := await process.stderr.read(4096):
            self._words += data
            del self._words[:-_KEPT_WORDS]

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(2.0):
                    await process.wait()
            except TimeoutError:
                process.kill()  # it computes something long; its guests end with it
                await process.wait()
        if self._listener is not None:
            await self._listener
            self._listener = None
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            await asyncio.to_thread(folders.remove, scratch)


def run_check(
    exercise: str,
    path: Path,
    on_check: Callable[[CheckResult], None] | None = None,
    *,
    model: str | None = None,
    exercises: Path | None = None,
    seed: int = DEFAULT_SEED,
) -> Verdict:
    """Grade one file in a judge of its own and wait for it; not from inside an event loop.

    on_check is called with each result as it comes. Raises JudgeError when there is no verdict.
    """

    async def run() -> Verdict:
        client = JudgeClient(model, exercises, warm=False)
        try:
            async for event in client.check(exercise, path, seed):
                if isinstance(event, Finished):
                    return event.verdict
                if isinstance(event, CheckDone) and on_check is not None:
                    on_check(event.result)
            raise JudgeError("The judge ended without a verdict.")
        finally:
            await client.close()

    return asyncio.run(run())
