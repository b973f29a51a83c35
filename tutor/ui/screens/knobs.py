"""The knobs of a lab: change some, run again."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tutor.labs.scenario import Knob, KnobError, Knobs, KnobValue, LabKind


class KnobsScreen(ModalScreen[Knobs]):
    """Dismisses with all knobs, checked, or with nothing on Esc."""

    CSS_PATH = "dialog.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, kind: LabKind, knobs: Knobs) -> None:
        super().__init__()
        self._kind = kind
        self._knobs = knobs

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", can_focus=False):
            yield Static("Knobs", classes="title", markup=False)
            for knob in self._kind.knobs:
                with Horizontal(classes="row"):
                    yield Static(knob.label, classes="label", markup=False)
                    value = self._knobs.get(knob.name, knob.default)
                    yield Input(_typed(value), id=f"knob-{knob.name}", compact=True, select_on_focus=True)
                    yield Static(_allowed(knob), classes="allowed", markup=False)
            yield Static("", classes="problem", markup=False)
            yield Static("Enter runs with these, ↑ ↓ move, Esc closes this.", classes="foot", markup=False)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Say what the knob under the cursor does."""
        for knob in self._kind.knobs:
            if event.widget.id == f"knob-{knob.name}":
                self.query_one(".problem", Static).update(knob.help)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        given = {knob.name: self.query_one(f"#knob-{knob.name}", Input).value for knob in self._kind.knobs}
        try:
            self.dismiss(self._kind.settings(given))
        except KnobError as error:
            self.query_one(".problem", Static).update(str(error))


def _typed(value: KnobValue) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _allowed(knob: Knob) -> str:
    spread = {
        "int": f"{knob.low} to {knob.high}",
        "choice": ", ".join(knob.choices),
        "bool": "on, off",
        "text": "",
    }[knob.kind]
    return spread
