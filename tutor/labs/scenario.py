"""How a lab is declared: its producer, its knobs, its panels and the phenomenon it teaches.

A lab kind is one module under `tutor/labs/` that makes a `LabKind`; `tutor/labs/registry.py` lists them.
The producer runs in the child process; nothing here imports it (it is named by its dotted path).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tutor.trace.views import LabView

KnobValue = int | float | bool | str
Knobs = dict[str, KnobValue]


class KnobError(ValueError):
    """A knob has a value outside its range; the message is a sentence for the user."""


@dataclass(frozen=True)
class Knob:
    """One setting of a lab. `kind`: int or float (low..high), choice (choices), bool or text.

    `group`: its heading in the knobs dialog; a lab with headings gets two columns.
    """

    name: str
    label: str
    kind: str
    default: KnobValue
    help: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    group: str = ""

    def parse(self, raw: object) -> KnobValue:
        """Turn a typed or stored value into the knob's type; KnobError says what is allowed."""
        if self.kind == "bool":
            if isinstance(raw, bool):
                return raw
            words = {"on": True, "true": True, "yes": True, "1": True}
            words |= {"off": False, "false": False, "no": False, "0": False}
            if str(raw).strip().lower() in words:
                return words[str(raw).strip().lower()]
            raise KnobError(f"{self.label} is on or off, not {raw!r}.")
        if self.kind == "int":
            try:
                number = int(str(raw).strip())
            except ValueError:
                raise KnobError(f"{self.label} is a whole number, not {raw!r}.") from None
            if not self.low <= number <= self.high:
                raise KnobError(f"{self.label} goes from {self.low} to {self.high}, not {number}.")
            return number
        if self.kind == "float":
            try:
                fraction = float(str(raw).strip())
            except ValueError:
                raise KnobError(f"{self.label} is a number, such as {self.default}, not {raw!r}.") from None
            if not self.low <= fraction <= self.high:  # also refuses nan
                raise KnobError(f"{self.label} goes from {self.low:g} to {self.high:g}, not {fraction:g}.")
            return fraction
        if self.kind == "choice" and str(raw) not in self.choices:
            raise KnobError(f"{self.label} is one of {', '.join(self.choices)}, not {raw!r}.")
        return str(raw)


@dataclass(frozen=True)
class LabKind:
    """A kind of lab. `producer` is `module:Class` (run in the child); `plain` writes a view as text."""

    id: str
    title: str
    phenomenon: str
    producer: str
    knobs: tuple[Knob, ...]
    panels: tuple[str, ...]
    plain: Callable[[LabView], str]

    def settings(self, given: Mapping[str, object]) -> Knobs:
        """All knobs with the given values checked and the others at their defaults."""
        by_name = {knob.name: knob for knob in self.knobs}
        for name in given:
            if name not in by_name:
                raise KnobError(f"This lab has no knob {name!r}; it has {', '.join(by_name)}.")
        return {name: knob.parse(given.get(name, knob.default)) for name, knob in by_name.items()}


def default_threads() -> int:
    """One core is left to the screen: llama.cpp's threads spin and starve whatever shares their cores."""
    return max(1, (os.cpu_count() or 2) - 1)
