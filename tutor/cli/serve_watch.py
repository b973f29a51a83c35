"""`tutor serve --watch`: the lab's panels over the trace of the running server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

from tutor.cli.serve_trace import TraceFile
from tutor.endpoint.messages import Settings
from tutor.endpoint.rolling import RollingTrace
from tutor.endpoint.server import Server, ServerError, ServerOptions
from tutor.labs.registry import get_kind
from tutor.labs.scenario import Knobs, LabKind
from tutor.labs.session import LabSession
from tutor.llama import messages as worker
from tutor.trace.events import TraceHeader, TraceRecord

COULD_NOT_RUN = 3


class WatchSession(LabSession):
    """Stands in for a lab's session: the engine is a server's, so looking back never stops it."""

    def __init__(
        self, kind: LabKind, settings: Settings, options: ServerOptions, trace: TraceFile | None
    ) -> None:
        super().__init__(kind, {}, settings.model)
        self._trace_file = trace
        self.on_url: Callable[[str], None] = lambda _: None  # told the address once the server listens
        self._rolling: RollingTrace | None = None
        self._task: asyncio.Task[None] | None = None
        self.server = Server(
            settings, options, on_ready=self._ready, on_death=self._died, sink=self._sink, on_screen=True
        )

    async def start(self) -> None:
        self.status = "starting"
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            await self.server.run()
        except ServerError as error:
            self.status, self.error = "dead", str(error)
            self.last_words = self.server.engine.last_words

    async def stop(self) -> None:
        """End the server; running answers get their time."""
        self.server.stop()
        if self._task is not None:
            await self._task
            self._task = None

    async def rerun(self, knobs: Knobs) -> None:
        self.refusal = "The settings of a running server are the options it was started with."

    def _ready(self, url: str) -> None:
        self.status = "running"
        self.on_url(url)

    def _died(self, sentence: str) -> None:
        self.refusal = f"{sentence} It is started again."

    def _sink(self, header: TraceHeader, records: list[TraceRecord]) -> None:
        if self._trace_file is not None:
            self._trace_file(header, records)
        if not records or self._rolling is None:
            self._rolling = RollingTrace(header)
        self._rolling.append(records)
        self.store, self.playback = self._rolling.store, self._rolling.playback

    # --- transport: the screen moves, the engine does not ------------------------------------------

    async def toggle_pause(self) -> None:
        if self.playback is not None:
            if self.playback.playing:
                self.playback.pause()
            else:
                self.playback.follow()

    async def step_forward(self) -> None:
        if self.playback is not None:
            self.playback.step_forward()

    async def _hold(self) -> None:
        return

    async def send(self, command: worker.Command) -> None:
        return


def watch_server(
    settings: Settings, options: ServerOptions, trace: TraceFile | None, ascii_only: bool, fps: int
) -> int:
    """Serve and show until the user leaves; returns the exit code."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not terminal:
        print("--watch needs a terminal; leave it out to serve without a screen.", file=sys.stderr)
        return COULD_NOT_RUN
    from tutor.curriculum.loader import load_course
    from tutor.journal.store import Journal
    from tutor.ui.app import TutorApp
    from tutor.ui.screens.serve import ServeScreen
    from tutor.ui.services import Services
    from tutor.ui.theme import needs_ascii

    kind = get_kind("serve")
    session = WatchSession(kind, settings, options, trace)
    services = Services(
        load_course(), Journal(), model=settings.model, fps=fps,
        make_lab=lambda _kind, _knobs, _model, _trace: session,
    )  # fmt: skip

    def make_screen() -> ServeScreen:
        screen = ServeScreen(services, kind, {}, title=f"serve {options.host}:{options.port or '…'}")
        session.on_url = lambda url: screen.retitle(f"serve {urlsplit(url).netloc}")
        return screen

    app = TutorApp(services, ascii_only=needs_ascii(ascii_only), first=make_screen)
    app.run()
    if session.status == "dead":
        print(session.error, file=sys.stderr)
        return COULD_NOT_RUN
    return app.return_code or 0
