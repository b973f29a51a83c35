"""What a lab shows: title, transport, panels (beside each other or as tabs), note, knobs, last words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from tutor.labs.scenario import LabKind
from tutor.trace.events import TraceHeader
from tutor.trace.views import LabView
from tutor.ui.screens.base import KeyBar, TitleBar, TutorScreen
from tutor.ui.services import Services
from tutor.ui.theme import PROVENANCE
from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.base import legend
from tutor.ui.widgets.transport import STATUS, Transport

if TYPE_CHECKING:
    from tutor.labs.session import LabSession

Keys = tuple[tuple[str, str, str], ...]  # (key, what, action)

KEYS: Keys = (
    ("Space", "pause", "screen.pause"),
    (", .", "step", "screen.forward"),
    ("< >", "speed", ""),
    ("k", "knobs", "screen.knobs"),
    ("?", "help", "screen.help"),
    ("Esc", "back", "screen.back"),
)
DEAD_KEYS: Keys = (
    ("r", "start again", "screen.restart"),
    ("k", "knobs", "screen.knobs"),
    ("Esc", "back", "screen.back"),
)


class LabFrame(TutorScreen):
    """The widgets of one session and how they follow it. `watch`: sentences of what to look at."""

    KEYS: ClassVar[Keys] = KEYS
    DEAD_KEYS: ClassVar[Keys] = DEAD_KEYS
    DEAD_HINT: ClassVar[str] = "r starts it again, k changes the knobs, Esc goes back."
    DEAD_WORD: ClassVar[str] = STATUS["dead"][1]
    KNOBS_WORD: ClassVar[str] = "knobs: "

    def __init__(
        self, services: Services, kind: LabKind, session: LabSession, title: str, watch: tuple[str, ...]
    ) -> None:
        super().__init__(services)
        self.kind = kind
        self.session = session
        self._lab_title = title.upper()
        self._watch = watch
        self._tab = 1
        self._drawn: LabView | None = None
        self._status = ""
        self._noted = ""

    def body(self) -> ComposeResult:
        yield TitleBar(self._lab_title)
        yield Transport(self.DEAD_WORD)
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
        yield KeyBar(self._keys)

    @property
    def _keys(self) -> Keys:
        """Without the knobs where a recording cannot be run again."""
        return tuple(key for key in self.KEYS if self.kind.producer or key[0] != "k")

    def _show_frame(self) -> None:
        """Everything that does not need a view yet."""
        self.query_one("#dead").display = False
        self.set_class("cells" in self.panels, "-has-cells")
        self._show_tabs()
        self._show_status()
        next(iter(self.panels.values())).focus()

    # --- panels and tabs ------------------------------------------------------------------------

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

    def action_cells(self) -> None:
        if "cells" not in self.panels:
            self.say("Only labs with a block pool have a cell map.")
        elif self.has_class("-wide"):
            self.toggle_class("-no-cells")
        else:
            self.action_tab(list(self.panels).index("cells") + 1)
        self._show_again()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_again)

    # --- the picture ----------------------------------------------------------------------------

    def _show_view(self) -> bool:
        """Show the session's view; True when it is another one than before."""
        view = self.session.view
        fresh = view is not None and view is not self._drawn
        if view is not None and fresh:
            first = self._drawn is None or self._drawn.header is not view.header
            self._drawn = view
            if first:
                self._show_header(view)
            for panel in self.panels.values():
                if panel.display:
                    panel.show(view)
            self._show_note(view)
        self._show_transport()
        return fresh

    def _show_again(self) -> None:
        """Panels that were hidden in a narrow terminal have missed some views."""
        if self._drawn is not None:
            self._show_knobs(self._drawn.header)
            for panel in self.panels.values():
                panel.show(self._drawn)

    def _show_transport(self) -> None:
        s = self.session
        playing = s.playback is not None and (s.playback.playing or s.playback.following)
        self.query_one(Transport).show(s.step, s.last_step, s.status, s.speed, playing)

    def _show_header(self, view: LabView) -> None:
        header = view.header
        mark, word = PROVENANCE[header.provenance]
        where = "" if header.clock == "wall" else ", virtual clock"
        source = ", llama.cpp" if self.kind.producer else ""
        self.query_one(TitleBar).say(self._lab_title, f"{mark} {word} {header.model}{source}{where}")
        self._show_knobs(header)

    def _show_knobs(self, header: TraceHeader) -> None:
        """On one line, or on two where that shows all of them."""
        names = {knob.name: knob.label for knob in self.kind.knobs}
        usual = {knob.name: knob.default for knob in self.kind.knobs}
        given = header.knobs or self.session.knobs
        order = sorted(given, key=lambda name: given[name] == usual.get(name))  # changed ones are read first
        knobs = [f"{names.get(name, name)} {knob_text(given[name])}" for name in order]
        said = (self.KNOBS_WORD if self.kind.producer else "") + "  ".join(knobs)
        self.query_one("#knobs", Static).update(self._fit_knobs(said, max(1, self.size.width - 2)))

    def _fit_knobs(self, said: str, width: int) -> str:
        rows = ["".join(run for run, _ in row) for row in legend(said, width)]
        return "\n".join(rows) if len(rows) <= 2 else said

    def _show_note(self, view: LabView) -> None:
        note = view.note or (self._watch[0] if self._watch else self.kind.phenomenon)
        if note != self._noted:
            self._noted = note
            self.query_one("#note", Static).update(note)

    def _show_status(self) -> None:
        self._status = self.session.status
        dead = self._status == "dead"
        box = self.query_one("#dead", Static)
        box.display = dead
        if dead:
            words = "\n".join(f"  {line}" for line in self.session.last_words[-6:])
            said = f"\nIts last words:\n{words}" if words else ""
            box.update(f"{self.session.error}{said}\n{self.DEAD_HINT}")
        self.query_one(KeyBar).show(self.DEAD_KEYS if dead else self._keys)
        self._show_transport()


def knob_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value)
    return (text if len(text) <= 20 else text[:19] + "…") or "–"
