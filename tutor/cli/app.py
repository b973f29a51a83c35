"""Opens the full-screen tutor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
    fps: int = FPS,
    first: Callable[[Services], Screen[None]] | None = None,
) -> int:
    """Run until the learner quits; returns the exit code. `first` makes another first screen than the map."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(
            "The full-screen tutor needs a terminal. Without one, `tutor list`, `tutor lesson`, "
            "`tutor check` and the other commands work; see `tutor --help`.",
            err=True,
        )
        return COULD_NOT_RUN
    from tutor.curriculum.errors import CourseError
    from tutor.curriculum.loader import load_course
    from tutor.journal.store import Journal

    try:
        course = load_course()
    except CourseError as error:
        click.echo(f"The course cannot be read: {error}", err=True)
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
    )
    make_first = None if first is None else (lambda: first(services))
    app = TutorApp(services, ascii_only=needs_ascii(ascii_only), first=make_first)
    app.run()
    return app.return_code or 0
