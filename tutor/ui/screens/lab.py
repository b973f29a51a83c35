"""The one frame of all labs: panels over a frozen view, a transport line, knobs, and an inspector."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from tutor.curriculum.schema import LabSpec
from tutor.journal.events import LabRun
from tutor.labs.registry import UnknownLab, get_kind
from tutor.labs.scenario import KnobError, Knobs, LabKind
from tutor.trace.codec import TraceError
from tutor.trace.views import LabView
from tutor.ui.screens.base import Help, KeyBar, TitleBar, TutorScreen
from tutor.ui.services import Services
from tutor.ui.theme import PROVENANCE
from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.base import Panel
from tutor.ui.widgets.transport import Transport

if TYPE_CHECKING:
    from tutor.trace.store import TraceStore
    from tutor.ui.screens.base import TutorScreen as AnyScreen

KEYS = (
    ("Space", "pause", "screen.pause"),
    (", .", "step", "screen.forward"),
    ("< >", "speed", ""),
    ("k", "knobs", "screen.knobs"),
    ("?", "help", "screen.help"),
    ("Esc", "back", "screen.back"),
)
DEAD_KEYS = (
    ("r", "start again", "screen.restart"),
    ("k", "knobs", "screen.knobs"),
    ("Esc", "back", "screen.back"),
)


class LabScreen(TutorScreen):
    """Shows one session. `watch` are the sentences of what to look at; `lesson` is journaled if given."""

    CSS_PATH = ["lab.tcss", "../widgets/panels/panels.tcss"]  # noqa: RUF012 (Textual declares its type)
    HELP_TITLE = "a lab"
    ALL_KEYS: ClassVar[Help] = (
        ("Space", "pause and go on"),
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
        super().__init__(services)
        self.kind = kind
        self.session = services.lab(kind, knobs, trace)
        if at is not None and self.session.playback is not None:
            self.session.playback.seek(at)
        self._lab_title = (title or kind.title).upper()
        self._watch = watch
        self._lesson = lesson
        self._tab = 1
        self._drawn: LabView | None = None
        self._status = ""
        self._refusal = ""
        self._last_tick = time.monotonic()

    # --- building -------------------------------------------------------------------------------

    def body(self) -> ComposeResult:
        yield TitleBar(self._lab_title)
        yield Transport()
        yield Static(id="tabs", markup=False)
        self.panels = {name: make_panel(name) for name in self.kind.panels}
        for name, panel in self.panels.items():
            panel.id = f"panel-{name}"
        shown = list(self.panels.values())
        with Horizontal(id="panels"):
            with Vertical(classes="column"):
                yield from shown[0::2]
            if len(shown) > 1:
                with Vertical(classes="column"):
                    yield from shown[1::2]
        yield Static(id="dead", markup=False)
        yield Static(id="note", markup=False)
        yield Static(id="knobs", markup=False)
        yield KeyBar(KEYS)

    async def on_mount(self) -> None:
        self.query_one("#dead").display = False
        self.set_class("cells" in self.panels, "-has-cells")
        self._show_tabs()
        self._show_status()
        next(iter(self.panels.values())).focus()
        self.set_interval(1 / self.services.fps, self._tick)
        await self.session.start()

    async def on_unmount(self) -> None:
        await self.session.stop()

    def _show_tabs(self) -> None:
        names = list(self.panels)
        parts: list[Content] = []
        for number, name in enumerate(names, start=1):
            here = number == self._tab
            label = Content(f" {number} {self.panels[name].TITLE.lower()} ")
            parts.append(
                label.stylize("bold reverse" if here else "$secondary").stylize(
                    f"@click=screen.tab({number})"
                )
            )
            self.panels[name].set_class(not here, "-other-tab")
        self.query_one("#tabs", Static).update(Content.assemble(*parts))
        for column in self.query(".column"):
            column.set_class(all(panel.has_class("-other-tab") for panel in column.children), "-no-tab")

    def action_tab(self, number: int) -> None:
        if 1 <= number <= len(self.panels):
            self._tab = number
            self._show_tabs()
            self._show_again()
            list(self.panels.values())[number - 1].focus()

    # --- the picture ----------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        self.session.tick(now - self._last_tick)
        self._last_tick = now
        view = self.session.view
        if view is not None and view is not self._drawn:
            first = self._drawn is None or self._drawn.header is not view.header
            self._drawn = view
            if first:
                self._show_header(view)
            for panel in self.panels.values():
                if panel.display:
                    panel.show(view)
            self._show_note(view)
        self._show_transport()
        if self.session.status != self._status:
            self._show_status()
        if self.session.refusal != self._refusal:
            self._refusal = self.session.refusal
            self.say(self._refusal, bad=True)

    def _show_transport(self) -> None:
        s = self.session
        playing = s.playback is not None and (s.playback.playing or s.playback.following)
        self.query_one(Transport).show(s.step, s.last_step, s.status, s.speed, playing)

    def _show_header(self, view: LabView) -> None:
        header = view.header
        mark, word = PROVENANCE[header.provenance]
        where = "" if header.clock == "wall" else ", virtual clock"
        self.query_one(TitleBar).say(self._lab_title, f"{mark} {word} {header.model}, llama.cpp{where}")
        names = {knob.name: knob.label for knob in self.kind.knobs}
        knobs = [
            f"{names.get(k, k)} {_knob_text(v)}" for k, v in (header.knobs or self.session.knobs).items()
        ]
        self.query_one("#knobs", Static).update("knobs: " + "  ".join(knobs))

    def _show_note(self, view: LabView) -> None:
        note = view.note or (self._watch[0] if self._watch else self.kind.phenomenon)
        self.query_one("#note", Static).update(note)

    def _show_status(self) -> None:
        self._status = self.session.status
        dead = self._status == "dead"
        box = self.query_one("#dead", Static)
        box.display = dead
        if dead:
            words = "\n".join(f"  {line}" for line in self.session.last_words[-6:])
            said = f"\nIts last words:\n{words}" if words else ""
            box.update(f"{self.session.error}{said}\nr starts it again, k changes the knobs, Esc goes back.")
        self.query_one(KeyBar).show(DEAD_KEYS if dead else KEYS)
        self._show_transport()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_again)

    def _show_again(self) -> None:
        """Panels that were hidden in a narrow terminal have missed some views."""
        if self._drawn is not None:
            for panel in self.panels.values():
                panel.show(self._drawn)

    # --- transport ------------------------------------------------------------------------------

    async def action_pause(self) -> None:
        await self.session.toggle_pause()

    async def action_forward(self) -> None:
        await self.session.step_forward()

    async def action_backward(self) -> None:
        await self.session.step_back()

    async def action_slower(self) -> None:
        await self.session.slower()

    async def action_faster(self) -> None:
        await self.session.faster()

    async def action_seek(self, step: int) -> None:
        await self.session.seek(self.session.last_step if step < 0 else step)

    @on(Transport.Sought)
    async def _sought(self, event: Transport.Sought) -> None:
        await self.session.seek(event.step)

    async def action_follow(self) -> None:
        await self.session.follow()

    def action_go_to(self) -> None:
        from tutor.ui.screens.goto import GoToScreen

        self.app.push_screen(GoToScreen(self.session.last_step), self._go_to)

    async def _go_to(self, step: int | None) -> None:
        if step is not None:
            await self.session.seek(step)

    # --- the rest -------------------------------------------------------------------------------

    def action_knobs(self) -> None:
        from tutor.ui.screens.knobs import KnobsScreen

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

    def action_cells(self) -> None:
        if "cells" not in self.panels:
            self.say("Only labs with a block pool have a cell map.")
        elif self.has_class("-wide"):
            self.toggle_class("-no-cells")
        else:
            self.action_tab(list(self.panels).index("cells") + 1)
        self._show_again()

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


def lab_screen(services: Services, spec: LabSpec, lesson: str) -> AnyScreen:
    """The screen for a lesson's lab, with its knobs checked."""
    try:
        kind = get_kind(spec.kind)
        knobs = kind.settings(spec.knobs)
    except (UnknownLab, KnobError) as error:
        return BrokenLabScreen(services, str(error))
    return LabScreen(services, kind, knobs, title=spec.title, watch=spec.watch, lesson=lesson)


def _knob_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    return (text if len(text) <= 20 else text[:19] + "…") or "–"
