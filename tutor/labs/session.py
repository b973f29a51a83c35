"""A lab that runs or is replayed: the child process, the records it sent, and the cursor over them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from tutor.labs.scenario import Knobs, LabKind
from tutor.llama import messages as msg
from tutor.trace.codec import write_trace
from tutor.trace.playback import Playback
from tutor.trace.store import TraceStore
from tutor.trace.views import LabView

STEPS_PER_SECOND = 4.0
MAX_LINE = 1 << 24  # a cell map of many cells is one long line
LAST_WORDS = 12


class LabSession:
    """Owns one child process at a time.

    status: starting, running, paused, done (nothing left to run), dead (see `error` and `last_words`),
    stopped, or replay (a saved trace, no process). `on_change` is called when something arrived.
    The engine is held to `steps_per_second` (0: as fast as it goes), so that a person can watch it.
    """

    def __init__(
        self,
        kind: LabKind,
        knobs: Knobs,
        model_path: str | None = None,
        *,
        trace: TraceStore | None = None,
        on_change: Callable[[], None] | None = None,
        steps_per_second: float = STEPS_PER_SECOND,
        n_gpu_layers: int = 0,
    ) -> None:
        self.kind = kind
        self.knobs = knobs
        self.store = trace
        self.playback = Playback(trace, follow=False) if trace is not None else None
        self.status = "replay" if trace is not None else "starting"
        self.error = ""
        self.refusal = ""
        self.last_words: tuple[str, ...] = ()
        self._model_path = model_path
        self._on_change = on_change or (lambda: None)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._speed = 1.0
        self._pace = steps_per_second
        self.n_gpu_layers = n_gpu_layers

    # --- life of the process ----------------------------------------------------------------------

    async def start(self) -> None:
        """Start the child process. What goes wrong later shows as status `dead`."""
        if self.status == "replay":
            return
        self.status, self.error, self.last_words = "starting", "", ()
        self.store = self.playback = None
        # llama.cpp answers a failed assertion by starting a debugger; the last words suffice.
        environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tutor.labs.child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, limit=MAX_LINE, env=environment,
        )  # fmt: skip
        pace = self._pace * self._speed
        setup = msg.Setup(self.kind.id, self.knobs, self._model_path, pace, n_gpu_layers=self.n_gpu_layers)
        await self._write(msg.encode(setup))
        self._reader = asyncio.create_task(self._read(self._process))

    async def stop(self) -> None:
        """End the child process; the records stay."""
        process, reader = self._process, self._reader
        self._process = self._reader = None
        if process is None:
            return
        if process.returncode is None:
            if process.stdin is not None:
                process.stdin.close()  # end of file asks it to end
            try:
                await asyncio.wait_for(process.wait(), 2.0)
            except TimeoutError:
                process.kill()
                await process.wait()
        if reader is not None:
            await reader
        if self.status not in ("dead", "replay"):
            self.status = "stopped"

    async def rerun(self, knobs: Knobs) -> None:
        """Start again with other knobs (or after a death)."""
        await self.stop()
        self.knobs = knobs
        self.status = "starting"
        await self.start()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        words: deque[str] = deque(maxlen=LAST_WORDS)
        listener = asyncio.create_task(_collect(process.stderr, words))
        async for line in process.stdout:
            try:
                self._take(msg.decode_message(line))
            except msgspec.DecodeError as error:
                self.error = f"The engine process sent something unreadable: {error}."
                break
            self._on_change()
        await listener
        code = await process.wait()
        self.last_words = tuple(words)
        if self._process is process:
            self.status = "dead"
            self.error = self.error or f"The engine process ended unexpectedly ({_ending(code)})."
            self.error += _lost(self.store)
        self._on_change()

    def _take(self, message: msg.Message) -> None:
        match message:
            case msg.Started(header):
                self.store = TraceStore(header)
                self.playback = Playback(self.store)
                self.playback.speed = self._speed
            case msg.Recorded(record):
                assert self.store is not None
                self.store.append(record)
            case msg.StatusChanged(status):
                self.status = status
            case msg.Refused(sentence):
                self.refusal = sentence
            case msg.Failed(sentence):
                self.error = sentence

    async def _write(self, line: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        try:
            process.stdin.write(line)
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return  # it died; `_read` reports that

    async def send(self, command: msg.Command) -> None:
        await self._write(msg.encode(command))

    # --- the picture ------------------------------------------------------------------------------

    @property
    def view(self) -> LabView | None:
        return self.playback.view if self.playback is not None else None

    @property
    def step(self) -> int:
        return self.playback.step if self.playback is not None else 0

    @property
    def last_step(self) -> int:
        return self.playback.last_step if self.playback is not None else 0

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def is_live(self) -> bool:
        """A process runs or waits behind the newest record."""
        return self.status in ("running", "paused", "starting")

    def tick(self, dt: float) -> bool:
        """Advance the cursor; True when the picture changed."""
        return self.playback.tick(dt) if self.playback is not None else False

    def save(self, path: Path) -> None:
        """Write the records so far. Raises TraceError."""
        if self.store is not None:
            write_trace(path, self.store)

    # --- transport --------------------------------------------------------------------------------

    async def toggle_pause(self) -> None:
        """At the newest step: pause or resume the engine. Further back: play or pause the recording."""
        playback = self.playback
        if playback is None:
            return
        if playback.following and self.is_live:
            await self.send(msg.Pause() if self.status == "running" else msg.Resume())
        elif playback.playing:
            playback.pause()
        elif self.status == "paused" and playback.at_end:
            playback.follow()
            await self.send(msg.Resume())
        else:
            playback.play()

    async def step_forward(self) -> None:
        """One step on: in the recording, or of the engine itself when nothing newer is recorded."""
        playback = self.playback
        if playback is None:
            return
        if playback.at_end and self.is_live:
            playback.follow()
            await self.send(msg.StepOnce())
        else:
            playback.step_forward()

    async def step_back(self) -> None:
        await self._hold()
        if self.playback is not None:
            self.playback.step_back()

    async def seek(self, step: int) -> None:
        await self._hold()
        if self.playback is not None:
            self.playback.pause()
            self.playback.seek(step)

    async def follow(self) -> None:
        """Back to the newest step, and let the engine run."""
        if self.playback is not None:
            self.playback.follow()
        if self.status == "paused":
            await self.send(msg.Resume())

    async def faster(self) -> None:
        await self._set_speed(up=True)

    async def slower(self) -> None:
        await self._set_speed(up=False)

    async def _hold(self) -> None:
        """Looking back while the engine runs on would lose the place, so it waits."""
        if self.status == "running":
            await self.send(msg.Pause())

    async def _set_speed(self, *, up: bool) -> None:
        if self.playback is None:
            return
        if up:
            self.playback.faster()
        else:
            self.playback.slower()
        self._speed = self.playback.speed
        await self.send(msg.SetPace(self._pace * self._speed))


def _lost(store: TraceStore | None) -> str:
    """What the dead engine still had to do: its queue died with it."""
    if store is None:
        return ""
    serving = Playback(store).view.serving
    lost = [
        f"{r.label} ({r.num_output_tokens} of {r.max_tokens} tokens written)"
        if r.num_output_tokens
        else f"{r.label} (nothing written yet)"
        for r in serving.requests
        if r.status != "finished"
    ]
    return f" Lost with it: {', '.join(lost)}." if lost else ""


async def _collect(stream: asyncio.StreamReader, words: deque[str]) -> None:
    async for line in stream:
        words.append(line.decode("utf-8", "replace").rstrip())


def _ending(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        return f"killed by {name}"
    return f"exit code {code}"
