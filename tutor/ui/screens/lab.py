"""The screen of all labs: its keys, the session's life, knobs, inspector and saving."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tutor.curriculum.schema import LabSpec
from tutor.journal.events import LabRun
from tutor.labs.registry import UnknownLab, get_kind
from tutor.labs.scenario import KnobError, Knobs, LabKind
from tutor.trace.codec import TraceError
from tutor.ui.output import terminal_ready
from tutor.ui.pace import Pace
from tutor.ui.screens.base import Help, KeyBar, TitleBar, TutorScreen
from tutor.ui.screens.lab_frame import LabFrame
from tutor.ui.screens.lab_transport import TransportActions
from tutor.ui.services import Services
from tutor.ui.widgets.panels.base import Panel

if TYPE_CHECKING:
    from tutor.trace.store import TraceStore


class LabScreen(LabFrame, TransportActions):
    """Shows one session. `watch` are the sentences of what to look at; `lesson` is journaled if given."""

    CSS_PATH = ["lab.tcss", "../widgets/panels/panels.tcss"]  # noqa: RUF012 (Textual declares its type)
    HELP_TITLE = "a lab"
    ALL_KEYS: ClassVar[Help] = (
        ("Space", "pause and go on; when it is finished, play it again"),
        (".  ,", "one step on, one step back"),
        ("<  >", "slower, faster"),
        ("Home End", "first step, newest step"),
        ("g", "go to a step"),
        ("f", "follow: stay at the newest step and let the engine run"),
        ("Tab", "next panel; arrow keys move in it"),
        ("1 to 6", "show that panel (in a narrow terminal)"),
        ("Enter", "the life of the marked block, slot or request, and why"),
        ("k", "change the knobs and run again"),
        ("d", "llama.cpp's own cell map beside the ledger"),
        ("w", "what to watch for"),
        ("x", "save the trace"),
        ("r", "start again"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", show=False),
        Binding("full_stop", "forward", show=False),
        Binding("comma", "backward", show=False),
        Binding("less_than_sign", "slower", show=False),
        Binding("greater_than_sign", "faster", show=False),
        Binding("home", "seek(0)", show=False, priority=True),
        Binding("end", "seek(-1)", show=False, priority=True),
        Binding("g", "go_to", show=False),
        Binding("f", "follow", show=False),
        Binding("k", "knobs", show=False),
        Binding("d", "cells", show=False),
        Binding("w", "watch", show=False),
        Binding("x", "save", show=False),
        Binding("r", "restart", show=False),
        *(Binding(str(n), f"tab({n})", show=False) for n in range(1, 8)),
    ]

    def __init__(
        self,
        services: Services,
        kind: LabKind,
        knobs: Knobs,
        *,
        title: str = "",
        watch: tuple[str, ...] = (),
        lesson: str = "",
        trace: TraceStore | None = None,
        at: int | None = None,
    ) -> None:
        session = services.lab(kind, knobs, trace)
        if at is not None and session.playback is not None:
            session.playback.seek(at)
        super().__init__(services, kind, session, title or kind.title, watch)
        self._lesson = lesson
        self._refusal = ""
        self._last_tick = time.monotonic()
        self._pace = Pace(1 / services.fps)

    # --- life -----------------------------------------------------------------------------------

    async def on_mount(self) -> None:
        self._show_frame()
        self.set_interval(self._pace.interval, self._tick)
        await self.session.start()

    async def on_unmount(self) -> None:
        await self.session.stop()

    def _tick(self) -> None:
        now = time.monotonic()
        self.session.tick(now - self._last_tick)
        self._last_tick = now
        if self._pace.tick(now, terminal_ready()) and self._show_view():
            self._pace.painted()
        if self.session.status != self._status:
            self._show_status()
        if self.session.refusal != self._refusal:
            self._refusal = self.session.refusal
            self.say(self._refusal, bad=True)

    # --- knobs, inspector, saving ---------------------------------------------------------------

    def action_knobs(self) -> None:
        from tutor.ui.screens.knobs import KnobsScreen

        if not self.kind.producer:
            self.say("This recording can be played, but not run again.")
            return
        self.app.push_screen(KnobsScreen(self.kind, self.session.knobs), self._rerun)

    async def _rerun(self, knobs: Knobs | None) -> None:
        if knobs is not None:
            self._journal()
            self._drawn = None
            await self.session.rerun(knobs)

    async def action_restart(self) -> None:
        if self.session.status == "replay":
            await self.session.seek(0)
            return
        await self._rerun(self.session.knobs)

    def action_watch(self) -> None:
        from tutor.ui.screens.inspector import InspectorScreen

        lines = [self.kind.phenomenon, "", *(f"• {sentence}" for sentence in self._watch)]
        self.app.push_screen(InspectorScreen("What to watch for", lines))

    @on(Panel.Inspect)
    def _inspect(self, event: Panel.Inspect) -> None:
        from tutor.ui.screens.inspector import InspectorScreen, life_of

        store, playback = self.session.store, self.session.playback
        if store is None or playback is None or self._drawn is None:
            return
        records = store.records[: store.step_end(playback.step)]
        title, lines = life_of(records, self._drawn, event.kind, event.key)
        self.app.push_screen(InspectorScreen(title, lines))

    def action_save(self) -> None:
        from tutor import resources

        if self.session.store is None:
            self.say("There is nothing to save yet.")
            return
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = Path(resources.data_dir()) / "traces" / f"{self.kind.id}-{stamp}.jsonl"
        try:
            self.session.save(path)
        except TraceError as error:
            self.say(str(error), bad=True)
            return
        self.say(f"Saved to {path}. `tutor replay` plays it.")

    def _journal(self) -> None:
        if self._lesson and self.session.last_step > 0:
            self.record(LabRun(lesson=self._lesson, kind=self.kind.id, steps=self.session.last_step))

    def action_back(self) -> None:
        self._journal()
        super().action_back()


class BrokenLabScreen(TutorScreen):
    """A lab that cannot be opened: the reason, and the way back."""

    def __init__(self, services: Services, sentence: str) -> None:
        super().__init__(services)
        self._sentence = sentence

    def body(self) -> ComposeResult:
        yield TitleBar("LAB")
        yield Static(f"\n  {self._sentence}\n  Reading and the questions work without it.", markup=False)
        yield KeyBar((("Esc", "back", "screen.back"),))


def lab_screen(services: Services, spec: LabSpec, lesson: str) -> TutorScreen:
    """The screen for a lesson's lab, with its knobs checked."""
    try:
        kind = get_kind(spec.kind)
        knobs = kind.settings(spec.knobs)
    except (UnknownLab, KnobError) as error:
        return BrokenLabScreen(services, str(error))
    return LabScreen(services, kind, knobs, title=spec.title, watch=spec.watch, lesson=lesson)
