"""`tutor watch [ID]`: check an exercise whenever its file is saved, in any editor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tutor.cli.course_view import open_course, use_ascii
from tutor.cli.exercise_view import (
    COULD_NOT_RUN,
    complete_exercise,
    exercise,
    explained,
    stop,
    workspace,
)
from tutor.cli.watch_keys import ESCAPE, Keys
from tutor.cli.watch_screen import ScreenView
from tutor.cli.watch_session import Session
from tutor.cli.watch_standing import Standing
from tutor.cli.watch_view import JsonView, PlainView, View
from tutor.grading.client import JudgeClient
from tutor.grading.errors import JudgeError
from tutor.grading.exercise import Exercise, exercise_ids, find_exercise
from tutor.journal.store import Journal

_SIGNALED = 128  # plus the number of the signal, as a shell reports it


@click.command("watch")
@click.argument("ident", metavar="[ID]", required=False, shell_complete=complete_exercise)
@click.option("--poll", is_flag=True, help="Look at the files regularly (for folders that do not notify).")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each verdict; no keys.")
@click.pass_context
def command(ctx: click.Context, ident: str | None, poll: bool, as_json: bool) -> None:
    """Check an exercise whenever its file is saved. Without ID: the first that you have not passed.

    Saving the file of another exercise goes over to that one. After a pass, `n` goes on to the next.

    Keys: h hint, r run again, n next, l list, Space more, Enter back, q quit. Ends with 0 after q, with 130
    after Ctrl-C, with 3 when it could not run.
    """
    with explained():
        items = [find_exercise(name) for name in exercise_ids()]
    standing = Standing(open_course(), items, Journal())
    first = exercise(ident) if ident is not None else standing.next() or next(iter(standing.exercises), None)
    if first is None:
        stop("There is no exercise yet.", COULD_NOT_RUN)
    if workspace(ctx).folder.exists() and not workspace(ctx).folder.is_dir():
        stop(f"{workspace(ctx).folder} is not a folder; choose another with --workspace.", COULD_NOT_RUN)
    judge = JudgeClient(model=ctx.obj["model"], exercises=_only_folder(items))
    code = asyncio.run(_watch(ctx, standing, judge, first, poll, as_json))
    ctx.exit(code)


def _only_folder(items: list[Exercise]) -> Path | None:
    """The exercises' folder, when they share one; the judge finds those of lesson packs by itself."""
    folders = {item.folder.parent for item in items}
    return folders.pop() if len(folders) == 1 else None


async def _watch(
    ctx: click.Context, standing: Standing, judge: JudgeClient, first: Exercise, poll: bool, as_json: bool
) -> int:
    ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    view: View = JsonView() if as_json else PlainView()
    screen = None if as_json or not _is_terminal() else ScreenView(_write, use_ascii(ctx), _color())
    session = Session(standing, workspace(ctx), judge, screen or view, first)
    with _signals(ending):
        try:
            if screen is None:
                return await _first_of(session.run(poll), ending)
            with _screen(session, screen, ending):
                return await _first_of(session.run(poll), ending)
        except JudgeError as error:
            click.echo(str(error), err=True)
            return COULD_NOT_RUN
        finally:
            await judge.close()


async def _first_of(work: Coroutine[Any, Any, None], ending: asyncio.Future[int]) -> int:
    """Runs the work until `ending` has an exit code; an exception of the work is passed on."""
    task = asyncio.create_task(work)
    try:
        both: list[asyncio.Future[Any]] = [task, ending]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if ending.done():
        return ending.result()
    raise outcome if isinstance(outcome, BaseException) else AssertionError("watching never ends by itself")


@contextmanager
def _screen(session: Session, screen: ScreenView, ending: asyncio.Future[int]) -> Iterator[None]:
    def press(key: str) -> None:
        if key == " ":
            screen.turn()
        elif key in ("\r", "\n", ESCAPE):
            screen.back()
        elif session.press(key) and not ending.done():
            ending.set_result(0)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, screen.resized)
    try:
        with Keys(sys.stdin.fileno(), press, screen.show).reading():
            yield
    finally:
        screen.show(False)
        loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _signals(ending: asyncio.Future[int]) -> Iterator[None]:
    """Ctrl-C, kill and a closed terminal end the session in order."""

    def end(code: int) -> None:
        if not ending.done():
            ending.set_result(code)

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, end, _SIGNALED + number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _is_terminal() -> bool:
    """Whether there are keys to read and a screen to draw on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _color() -> bool:
    return not os.environ.get("NO_COLOR")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
