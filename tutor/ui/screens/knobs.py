"""The knobs of a lab: change some, run again."""

from __future__ import annotations

from itertools import groupby
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
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
        columns = two_columns(self._kind.knobs)
        with VerticalScroll(classes="dialog" + (" grouped" if columns else ""), can_focus=False):
            yield Static("Knobs", classes="title", markup=False)
            if columns:
                with Horizontal(classes="columns"):
                    for column in columns:
                        with Vertical(classes="knobs"):
                            for group in column:
                                yield Static(group[0].group, classes="heading", markup=False)
                                yield from self._rows(group, with_allowed=False)
            else:
                yield from self._rows(self._kind.knobs, with_allowed=True)
            yield Static("", classes="problem", markup=False)
            yield Static("Enter runs with these, ↑ ↓ move, Esc closes this.", classes="foot", markup=False)

    def _rows(self, knobs: tuple[Knob, ...], with_allowed: bool) -> ComposeResult:
        for knob in knobs:
            with Horizontal(classes="row"):
                yield Static(knob.label, classes="label", markup=False)
                value = self._knobs.get(knob.name, knob.default)
                yield Input(_typed(value), id=f"knob-{knob.name}", compact=True, select_on_focus=True)
                if with_allowed:
                    yield Static(_allowed(knob), classes="allowed", markup=False)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Say what the knob under the cursor does; in two columns also what it may be."""
        for knob in self._kind.knobs:
            if event.widget.id == f"knob-{knob.name}":
                allowed = f"\n{knob.label}: {_allowed(knob)}" if knob.group else ""
                self.query_one(".problem", Static).update(knob.help + allowed)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        given = {knob.name: self.query_one(f"#knob-{knob.name}", Input).value for knob in self._kind.knobs}
        try:
            self.dismiss(self._kind.settings(given))
        except KnobError as error:
            self.query_one(".problem", Static).update(str(error))


Group = tuple[Knob, ...]


def two_columns(knobs: Group) -> tuple[tuple[Group, ...], tuple[Group, ...]] | None:
    """Knobs by heading in two columns of about equal height; None when they have no headings."""
    if not all(knob.group for knob in knobs):
        return None
    groups = [tuple(group) for _, group in groupby(knobs, key=lambda knob: knob.group)]
    heights = [len(group) + 1 for group in groups]
    split = min(range(len(groups) + 1), key=lambda i: (max(sum(heights[:i]), sum(heights[i:])), i))
    return tuple(groups[:split]), tuple(groups[split:])


def _typed(value: KnobValue) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _allowed(knob: Knob) -> str:
    spread = {
        "int": f"{knob.low} to {knob.high}",
        "float": f"{knob.low:g} to {knob.high:g}",
        "choice": ", ".join(knob.choices),
        "bool": "on, off",
        "text": "",
    }[knob.kind]
    return spread
