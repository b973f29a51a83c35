"""`tutor list`: all lessons by stage, each with its state."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from tutor.cli.course_view import (
    STYLES,
    Standing,
    needs_words,
    output_width,
    print_json,
    standing,
    state_words,
    use_ascii,
    warn,
)
from tutor.curriculum.mastery import done_words
from tutor.curriculum.schema import Lesson

if TYPE_CHECKING:
    from rich.text import Text


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show all lessons by stage, with their state.

    A lesson is done when its exercise has passed. A locked lesson says what it needs first.
    """
    now = standing()
    warn(now.warnings)
    if as_json:
        print_json({"lessons": [_as_dict(now, lesson) for lesson in now.course], "summary": _summary(now)})
        return
    _print(now, use_ascii(ctx))


def _as_dict(now: Standing, lesson: Lesson) -> dict[str, Any]:
    state = now.states[lesson.id]
    return {
        "id": lesson.id,
        "number": lesson.number,
        "stage": lesson.stage,
        "title": lesson.title,
        "aliases": lesson.aliases,
        "line": lesson.line,
        "minutes": lesson.minutes,
        "needs": lesson.needs,
        "unlocks": lesson.unlocks,
        "status": state.status,
        "written": state.written,
        "missing": state.missing,
        "open_needs": state.open_needs,
    }


def _summary(now: Standing) -> dict[str, Any]:
    statuses = [state.status for state in now.states.values()]
    written = sum(lesson.written for lesson in now.course)
    return {"lessons": len(statuses), "written": written, "done": statuses.count("done"), "next": _next(now)}


def _next(now: Standing) -> str | None:
    """What to do now: first what was begun, then the first lesson that is ready."""
    for status in ("in_progress", "ready"):
        for id in now.course.order:
            if now.states[id].status == status:
                return id
    return None


def _print(now: Standing, ascii_only: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    width = output_width()
    by_stage = sorted(now.course, key=lambda lesson: (lesson.stage, lesson.number))
    for stage, lessons in groupby(by_stage, key=lambda lesson: lesson.stage):
        console.print(Text(f"Stage {stage}", style="bold"), soft_wrap=True)
        for lesson in lessons:
            for line in _lines(now, lesson, ascii_only, width):
                console.print(line, soft_wrap=True)
        console.print()
    summary = _summary(now)
    text = f"{done_words(now.states)}."
    if summary["next"]:
        following = f"Next: tutor lesson {summary['next']}"
        text += f" {following}" if len(text) + 1 + len(following) <= width else f"\n{following}"
    console.print(Text(text), soft_wrap=True)


def _lines(now: Standing, lesson: Lesson, ascii_only: bool, width: int) -> list[Text]:
    """One line; a second one for the needs where the screen is too narrow."""
    from rich.text import Text

    state = now.states[lesson.id]
    ids = max(len(other.id) for other in now.course)
    style = STYLES[state.status]
    line = Text(f"  {state_words(state, ascii_only):<17}  ", style=style)
    indent = len(line) + ids + 2
    line.append(lesson.id.ljust(ids), style="bold" if state.status in ("ready", "in_progress") else style)
    line.append(f"  {lesson.title}", style="dim" if state.status == "locked" else "")
    needs = f"({needs_words(state)})" if needs_words(state) else ""
    if needs and len(line) + 1 + len(needs) > width:
        return [line, Text(" " * indent + needs, style=style)]
    if needs:
        line.append(f" {needs}", style=style)
    return [line]
