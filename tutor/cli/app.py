"""Opens the full-screen tutor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.screen import Screen

    from tutor.ui.services import Services

COULD_NOT_RUN = 3
FPS = 10


def run_app(
    model: str | None,
    workspace: str | None,
    ascii_only: bool,
    *,
    lab: str | None = None,
    knobs: Mapping[str, object] | None = None,
    trace: Path | None = None,
    at: int | None = None,
    open_on: Callable[[Services], Screen[None]] | None = None,
    fps: int = FPS,
    n_gpu_layers: int = 0,
) -> int:
    """Run until the learner quits; returns the exit code.

    `lab` opens that lab instead of the map (with `knobs`), `trace` plays a saved trace (from step `at`),
    `open_on` makes another first screen.
    `fps` is the highest rate at which a lab repaints.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(
            "The full-screen tutor needs a terminal. Without one, `tutor list`, `tutor lesson`, "
            "`tutor check` and the other commands work; see `tutor --help`.",
            file=sys.stderr,
        )
        return COULD_NOT_RUN
    from tutor.curriculum.errors import CourseError
    from tutor.curriculum.loader import load_course
    from tutor.journal.store import Journal

    try:
        course = load_course()
    except CourseError as error:
        print(f"The course cannot be read: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    from tutor.ui.app import TutorApp
    from tutor.ui.services import Services
    from tutor.ui.theme import needs_ascii

    services = Services(
        course,
        Journal(),
        model=model or os.environ.get("TUTOR_MODEL") or None,
        workspace=Path(workspace).expanduser() if workspace else None,
        fps=fps,
        n_gpu_layers=n_gpu_layers,
    )
    first = _first_screen(services, lab, knobs or {}, trace, at) if lab or trace else None
    if open_on is not None:
        first = partial(open_on, services)
    app = TutorApp(services, ascii_only=needs_ascii(ascii_only), first=first)
    app.run()
    return app.return_code or 0


def _first_screen(
    services: Services, lab: str | None, knobs: Mapping[str, object], trace: Path | None, at: int | None
) -> Callable[[], Screen[None]]:
    """What makes the lab's screen. The caller has checked the lab's id, the knobs and the trace."""
    from tutor.labs.registry import get_kind
    from tutor.trace.codec import read_trace
    from tutor.ui.screens.lab import LabScreen

    store = read_trace(trace) if trace is not None else None
    kind = get_kind(store.header.lab if store is not None else lab or "")
    settings = kind.settings(store.header.knobs if store is not None else knobs)
    return lambda: LabScreen(services, kind, settings, trace=store, at=at)
