"""The HTTP side's handle of the engine process: starts it, restarts it, routes what it says to the requests.

All of it runs in one asyncio loop. States: "starting", "ready", "unloaded" (on request, until somebody needs
it), "restarting" (it died; requests get 503 meanwhile), "dead" (it does not start), "closed".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from tutor.endpoint import messages as msg
from tutor.endpoint.errors import ApiError, bad_request, overloaded, unavailable
from tutor.endpoint.generation import Generation
from tutor.endpoint.observer import Observer
from tutor.serving.sampling import SamplingParams

MAX_LINE = 1 << 26  # a long prompt's tokens come back on one line
LAST_WORDS = 12
STOP_LIMIT = 5.0  # seconds that the process gets to end by itself
BACKOFF = (0.0, 0.5, 2.0, 5.0)  # before each start after a death; dead when all starts failed
RECENT = 32  # finished requests from which the wait is estimated
LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # panels have room for one letter, so they come round again


@dataclass(frozen=True, slots=True)
class Ask:
    """What a handler wants generated, for each of its prompts `n` samples."""

    prompts: Sequence[msg.Prompt]
    sampling: SamplingParams
    max_tokens: int | None
    n: int = 1

    @property
    def num_samples(self) -> int:
        return len(self.prompts) * self.n


class EngineClient:
    """Owns one engine process at a time. `on_death` is told the sentence of each death."""

    def __init__(
        self,
        settings: msg.Settings,
        observer: Observer,
        *,
        max_waiting: int,
        on_death: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self.observer = observer
        self.max_waiting = max_waiting
        self.state = "starting"
        self.error = ""
        self.last_words: tuple[str, ...] = ()
        self.card: msg.ModelCard | None = None
        self.load_seconds = 0.0
        self._on_death = on_death or (lambda _sentence: None)
        self._process: asyncio.subprocess.Process | None = None
        self._runner: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._generations: dict[str, Generation] = {}
        self._calls: dict[int, asyncio.Future[msg.Tokenized]] = {}
        self._ids = count(1)
        self._call_ids = count(1)
        self._finished: deque[float] = deque(maxlen=RECENT)
        self._unloading = False
        self._told_why = False  # the process itself said why it cannot go on

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine and wait until it is ready. Raises ApiError (503) when it does not start."""
        self._runner = asyncio.create_task(self._keep_running())
        await self.ready()

    async def ready(self) -> float:
        """Wait until the engine is loaded; returns the seconds waited. Raises ApiError when it died."""
        started = time.perf_counter()
        async with self._changed:
            if self.state == "unloaded":
                await self._become("starting")
            await self._changed.wait_for(lambda: self.state not in ("starting", "unloaded"))
        if self.state != "ready":
            raise self._gone()
        return time.perf_counter() - started

    async def unload(self) -> None:
        """End the process when nobody uses it; the next request starts it again."""
        process = self._process
        if self.state == "ready" and not self._generations and process is not None:
            self._unloading = True
            async with self._changed:
                await self._become("unloaded")
            await _end(process)

    async def close(self) -> None:
        """End the process for good; requests that are left fail."""
        async with self._changed:
            await self._become("closed")
        self.fail_all(unavailable("The server is shutting down.", None))
        if self._process is not None:
            await _end(self._process)
        if self._runner is not None:
            await self._runner
            self._runner = None

    async def _become(self, state: str) -> None:
        self.state = state
        self._changed.notify_all()

    def _gone(self) -> ApiError:
        match self.state:
            case "dead":
                return unavailable(f"The engine does not start: {self.error}", None)
            case "closed":
                return unavailable("The server is shutting down.", None)
        return unavailable("The engine stopped and is being restarted.")

    async def _keep_running(self) -> None:
        """Start the process again and again; gives up when it cannot say why it should work next time."""
        failures = 0
        while self.state not in ("closed", "dead"):
            if self.state == "unloaded":
                async with self._changed:
                    await self._changed.wait_for(lambda: self.state != "unloaded")
                continue
            if not await self._pause(BACKOFF[failures]):
                return
            was_ready = await self._run_once()
            if self._unloading:
                self._unloading, failures = False, 0
                continue
            failures = 0 if was_ready else failures + 1
            hopeless = self._told_why or failures >= len(BACKOFF)
            async with self._changed:
                if self.state != "closed":
                    self.observer.died()
                    begun = self.state == "starting" and not was_ready
                    await self._become("dead" if hopeless else "starting" if begun else "restarting")
                    self._on_death(self.error)

    async def _pause(self, seconds: float) -> bool:
        """Wait; False when the engine is not wanted any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.state == "closed")
        return self.state != "closed"

    async def _run_once(self) -> bool:
        """One life of the process; True when it had become ready."""
        self.error, self.last_words, self._told_why = "", (), False
        # llama.cpp answers a failed assertion by starting a debugger; the last words suffice.
        environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tutor.endpoint.child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, limit=MAX_LINE, env=environment,
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        words: deque[str] = deque(maxlen=LAST_WORDS)
        listener = asyncio.create_task(_collect(process.stderr, words))
        self._write(msg.encode(self.settings))
        was_ready = False
        async for line in process.stdout:
            message = msg.decode_message(line)
            if isinstance(message, msg.Ready):
                was_ready = True
                await self._take_ready(message)
            else:
                self._take(message)
        await listener
        code = await process.wait()
        self._process = None
        self.last_words = tuple(words)
        self.error = self.error or f"The engine process ended unexpectedly (exit code {code})."
        self.observer.engine_gone()
        self.fail_all(unavailable("The engine stopped while it worked on this request."))
        return was_ready

    async def _take_ready(self, ready: msg.Ready) -> None:
        self.card = ready.model
        self.load_seconds = ready.load_seconds
        self.observer.ready(ready)
        async with self._changed:
            if self.state != "closed":
                await self._become("ready")

    def fail_all(self, error: ApiError) -> None:
        """End all requests with an error; the engine is not told."""
        for generation in list(self._generations.values()):
            generation.fail(error)
        self._generations.clear()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(error)
        self._calls.clear()

    # --- requests ---------------------------------------------------------------------------------

    @property
    def num_in_flight(self) -> int:
        """Samples that the engine runs or keeps waiting."""
        return sum(generation.num_left for generation in set(self._generations.values()))

    async def submit(self, ask: Ask, arrived_at: float) -> Generation:
        """Queue a request; returns when the engine has accepted it.

        Raises ApiError: 400 (too long, out of range), 429 (the waiting queue is full), 503 (no engine).
        """
        load_seconds = await self.ready() if self.state != "ready" else 0.0
        self._check_room(ask.num_samples)
        submits = [self._submit(prompt, ask, arrived_at) for prompt in ask.prompts]
        generation = Generation(submits, self._stop, load_seconds)
        for submit in submits:
            self._generations[submit.request_id] = generation
            self._write(msg.encode(submit))
        try:
            await generation.accepted()
        except asyncio.CancelledError:
            generation.abort()
            raise
        except ApiError:
            self._withdraw(generation)  # the other prompts of the same request
            raise
        return generation

    def _submit(self, prompt: msg.Prompt, ask: Ask, arrived_at: float) -> msg.Submit:
        number = next(self._ids)
        label = LABELS[(number - 1) % len(LABELS)]
        return msg.Submit(f"r{number}", label, prompt, ask.max_tokens, ask.sampling, ask.n, arrived_at)

    def _check_room(self, num_new: int) -> None:
        most = self.settings.engine.max_num_seqs + self.max_waiting
        if num_new > most:
            raise bad_request(f"{num_new} samples in one request are too many; at most {most} fit.", "n")
        waiting = max(0, self.num_in_flight - self.settings.engine.max_num_seqs)
        if self.num_in_flight + num_new > most:
            self.observer.rejected()
            raise overloaded(waiting, self._wait_estimate())

    def _wait_estimate(self) -> int:
        """Seconds until a request is done, at the pace of the latest ones; 1 at least, 60 at most."""
        if len(self._finished) < 2:
            return 1
        span = self._finished[-1] - self._finished[0]
        return max(1, min(60, round(span / (len(self._finished) - 1))))

    def _stop(self, generation: Generation) -> None:
        """The client is gone."""
        self._withdraw(generation)
        self.observer.aborted(generation)

    def _withdraw(self, generation: Generation) -> None:
        now = time.perf_counter()
        for submit in generation.submits:
            if self._generations.pop(submit.request_id, None) is not None:
                self._write(msg.encode(msg.Abort(submit.request_id, submit.n, now)))

    async def tokenize(self, prompt: msg.Prompt) -> msg.Tokenized:
        return await self._call(lambda call_id: msg.Tokenize(call_id, prompt))

    async def detokenize(self, token_ids: list[int]) -> msg.Tokenized:
        return await self._call(lambda call_id: msg.Detokenize(call_id, token_ids))

    async def _call(self, make: Callable[[int], msg.Command]) -> msg.Tokenized:
        """Ask and wait for the answer. Raises ApiError (400, 503)."""
        await self.ready()
        call_id = next(self._call_ids)
        answer: asyncio.Future[msg.Tokenized] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = answer
        self._write(msg.encode(make(call_id)))
        try:
            return await answer
        finally:
            self._calls.pop(call_id, None)

    def _write(self, line: bytes) -> None:
        """A process that died is noticed where its messages are read."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(line)

    # --- messages ---------------------------------------------------------------------------------

    def _take(self, message: msg.Message) -> None:
        match message:
            case msg.Stepped():
                self._take_step(message)
            case msg.Accepted(request_id):
                if (generation := self._generations.get(request_id)) is not None:
                    generation.take_accepted(message)
            case msg.Rejected(request_id, code, sentence, param):
                if (generation := self._generations.pop(request_id, None)) is not None:
                    generation.fail(bad_request(sentence, param or None, code))
            case msg.Tokenized(call_id):
                if (call := self._calls.get(call_id)) is not None and not call.done():
                    call.set_result(message)
            case msg.Refused(call_id, sentence):
                if (call := self._calls.get(call_id)) is not None and not call.done():
                    call.set_exception(bad_request(sentence, code="invalid_value"))
            case msg.Aborted():
                self.observer.freed(message)
            case msg.Recorded(records):
                self.observer.recorded(records)
            case msg.Failed(sentence):
                self.error, self._told_why = sentence, True
            case _:
                pass

    def _take_step(self, step: msg.Stepped) -> None:
        self.observer.stepped(step)
        for output in step.outputs:
            generation = self._generations.get(output.request_id)
            if generation is None:
                continue
            piece = generation.take(output, step.at)
            if piece is None:
                continue
            self.observer.took(generation, piece, step.at)
            if output.finish_reason:
                self._finished.append(step.at)
            if generation.is_over:
                for submit in generation.submits:
                    self._generations.pop(submit.request_id, None)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End of file asks it to end; one that does not is killed."""
    if process.returncode is None and process.stdin is not None:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_LIMIT)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _collect(stream: asyncio.StreamReader, words: deque[str]) -> None:
    async for line in stream:
        words.append(line.decode("utf-8", "replace").rstrip())
