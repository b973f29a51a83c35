"""The panels of a running server. Looking back moves the picture only: the server goes on."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from tutor.ui.screens.base import Help, TitleBar
from tutor.ui.screens.lab import LabScreen
from tutor.ui.screens.lab_frame import Keys, knob_text
from tutor.ui.widgets.panels.base import legend


class ServeScreen(LabScreen):
    """A lab's screen without what a server cannot do: run again, change its knobs, wait."""

    CSS_PATH = LabScreen.CSS_PATH
    HELP_TITLE = "a running server"
    KEYS: ClassVar[Keys] = (
        ("Space", "hold", "screen.pause"),
        (", .", "step", "screen.forward"),
        ("f", "live", "screen.follow"),
        ("k", "options", "screen.knobs"),
        ("?", "help", "screen.help"),
        ("q", "quit", "app.leave"),
    )
    DEAD_KEYS: ClassVar[Keys] = (("q", "quit", "app.leave"),)
    DEAD_HINT = "q quits."
    DEAD_WORD = "not serving"
    KNOBS_WORD = "options: "
    ALL_KEYS: ClassVar[Help] = (
        ("Space", "hold the picture, and back to now; the server goes on"),
        (",  .", "one step back, one step on"),
        ("f  End", "back to now"),
        ("Home", "the oldest step that is kept"),
        ("g", "go to a step"),
        ("<  >", "play what is held slower, faster"),
        ("Tab", "next panel; arrow keys move in it"),
        ("1 to 5", "show that panel (in a narrow terminal)"),
        ("Enter", "the life of the marked block, slot or request, and why"),
        ("k", "the options that it was started with"),
        ("w", "what to watch for"),
        ("x", "save the steps that are kept, for tutor replay"),
        ("q", "stop the server and quit; running answers get --grace seconds"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("end", "follow", show=False, priority=True),
        Binding("q", "app.leave", show=False),
    ]

    def retitle(self, title: str) -> None:
        """The port is known only when the server listens on it."""
        self._lab_title = title.upper()
        self.query_one(TitleBar).say(self._lab_title)
        if self._drawn is not None:
            self._show_header(self._drawn)

    def _fit_knobs(self, said: str, width: int) -> str:
        """As many as fit whole on one line; `k` has all of them."""
        more = "  k: all"
        first, *rest = legend(said, width - len(more))
        return "".join(text for text, _ in first) + (more if rest else "")

    def action_knobs(self) -> None:
        from tutor.ui.screens.inspector import InspectorScreen

        given = self._drawn.header.knobs if self._drawn is not None else {}
        lines = [
            f"{knob.label:<24} {knob_text(given[knob.name])}"
            for knob in self.kind.knobs
            if knob.name in given
        ]
        said = lines or ["They are shown when the engine has started."]
        self.app.push_screen(
            InspectorScreen("Options of this server", [*said, "", "tutor serve --help explains them."])
        )

    async def action_restart(self) -> None:
        self.say("A server is not run again: its requests come from clients.")
