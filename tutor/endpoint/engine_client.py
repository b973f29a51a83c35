"""The HTTP side's handle of the engine process: starts it, restarts it, takes requests to it.

All of it runs in one asyncio loop. States: "starting", "ready", "unloaded" (on request, until somebody needs
it), "restarting" (it died; requests get 503 meanwhile), "dead" (it does not start), "closed".
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from tutor.endpoint import messages as msg
from tutor.endpoint.engine_process import EngineProcess
from tutor.endpoint.errors import ApiError, bad_request, overloaded, unavailable
from tutor.endpoint.generation import Generation
from tutor.endpoint.in_flight import InFlight
from tutor.endpoint.observer import Observer
from tutor.endpoint.watchdog import Watchdog
from tutor.serving.sampling import SamplingParams

HANG_LIMIT = 120.0  # seconds; the longest step of a large model on a slow machine is far below
BACKOFF = (0.0, 0.5, 2.0, 5.0)  # before each start after a death; dead when all starts failed
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
    """Owns one engine process at a time. `on_death` is told the sentence of each death.

    hang_limit: seconds that it may do nothing while requests wait; then it is killed. 0: any.
    """

    def __init__(
        self,
        settings: msg.Settings,
        observer: Observer,
        *,
        max_waiting: int,
        hang_limit: float = HANG_LIMIT,
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
        self.in_flight = InFlight(observer)
        self._process: EngineProcess | None = None
        self._hang_limit = hang_limit
        self._runner: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._ids = count(1)
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
        if self.state == "ready" and self.in_flight.is_empty and process is not None:
            self._unloading = True
            async with self._changed:
                await self._become("unloaded")
            await process.end()

    async def close(self) -> None:
        """End the process for good; requests that are left fail."""
        async with self._changed:
            await self._become("closed")
        self.fail_all(unavailable("The server is shutting down.", None))
        if self._process is not None:
            await self._process.end()
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
        process = self._process = await EngineProcess.start(self.settings)
        watchdog = Watchdog(self._hang_limit, self.in_flight)
        guard = asyncio.create_task(self._guard(process, watchdog))
        was_ready = False
        try:
            async for message in process.messages():
                watchdog.heard(message)
                match message:
                    case msg.Ready():
                        was_ready = True
                        await self._take_ready(message)
                    case msg.Failed(sentence):
                        self.error, self._told_why = sentence, True
                    case _:
                        self.in_flight.take(message)
        finally:
            guard.cancel()
        self._process = None
        self.last_words = process.last_words
        self.error = self.error or f"The engine process ended unexpectedly (exit code {process.exit_code})."
        self.observer.engine_gone()
        self.fail_all(unavailable("The engine stopped while it worked on this request."))
        return was_ready

    async def _guard(self, process: EngineProcess, watchdog: Watchdog) -> None:
        """Kill a process that hangs; the rest is as after any death."""
        await watchdog.silence()
        self.error = f"The engine hung: it did nothing for {watchdog.limit:g} s, so it was killed."
        process.kill()

    async def _take_ready(self, ready: msg.Ready) -> None:
        self.card = ready.model
        self.load_seconds = ready.load_seconds
        self.observer.ready(ready)
        async with self._changed:
            if self.state != "closed":
                await self._become("ready")

    def fail_all(self, error: ApiError) -> None:
        """End all requests with an error; the engine is not told."""
        self.in_flight.fail_all(error)

    # --- requests ---------------------------------------------------------------------------------

    async def submit(self, ask: Ask, arrived_at: float) -> Generation:
        """Queue a request; returns when the engine has accepted it.

        Raises ApiError: 400 (too long, out of range), 429 (the waiting queue is full), 503 (no engine).
        """
        load_seconds = await self.ready() if self.state != "ready" else 0.0
        self._check_room(ask.num_samples)
        submits = [self._submit(prompt, ask, arrived_at) for prompt in ask.prompts]
        generation = Generation(submits, self._stop, load_seconds)
        self.in_flight.add(generation)
        for submit in submits:
            self._write(submit)
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
        present = self.in_flight.num_samples
        if present + num_new > most:
            self.observer.rejected()
            waiting = max(0, present - self.settings.engine.max_num_seqs)
            raise overloaded(waiting, self.in_flight.wait_estimate())

    def _stop(self, generation: Generation) -> None:
        """The client is gone."""
        self._withdraw(generation)
        self.observer.aborted(generation)

    def _withdraw(self, generation: Generation) -> None:
        now = time.perf_counter()
        for submit in self.in_flight.withdraw(generation):
            self._write(msg.Abort(submit.request_id, submit.n, now))

    async def tokenize(self, prompt: msg.Prompt) -> msg.Tokenized:
        return await self._call(lambda call_id: msg.Tokenize(call_id, prompt))

    async def detokenize(self, token_ids: list[int]) -> msg.Tokenized:
        return await self._call(lambda call_id: msg.Detokenize(call_id, token_ids))

    async def _call(self, make: Callable[[int], msg.Command]) -> msg.Tokenized:
        """Ask and wait for the answer. Raises ApiError (400, 503)."""
        await self.ready()
        call_id, answer = self.in_flight.open_call()
        self._write(make(call_id))
        try:
            return await answer
        finally:
            self.in_flight.close_call(call_id)

    def _write(self, command: msg.Command) -> None:
        if self._process is not None:
            self._process.write(command)
