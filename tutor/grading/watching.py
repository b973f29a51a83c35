"""Grades files as they are saved: one at a time, and the content saved last is always the one graded last.

Notifications only say when to look. What counts is what is found: a save is a change of a file's content
or of its stamp (inode, time of change, size). A run during which its file was saved again has no meaning,
since nobody knows which of the two texts it read; its result is dropped and the file is graded again.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from tutor.grading.source import MAX_BYTES

LOOKS = 5  # at most, for one picture of all files
SETTLE_SECONDS = 0.03  # a file is taken when it looks the same twice, this far apart
SETTLE_LOOKS = 20
GRACE_SECONDS = 1.0  # a run whose file was saved again may go on for this long

T = TypeVar("T")


@dataclass(frozen=True)
class Saved:
    """A path at one moment. `data` holds at most one byte more than a file that can be graded.

    `touched` is the inode's own time in ns: no program can set it back, so it tells which save came last.
    It is not part of the comparison, since renaming or chmod move it, too.
    """

    stamp: tuple[int, int, int]
    data: bytes
    touched: int = field(default=0, compare=False)


def look(path: Path) -> Saved | None:
    """None when nothing is there. What cannot be read (a folder, no permission) has a stamp and no data."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a loop of links, a folder that may not be entered
        return Saved((0, 0, error.errno or 0), b"")
    stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for its writer
        return Saved(stamp, b"")
    try:
        with path.open("rb") as file:
            return Saved(stamp, file.read(MAX_BYTES + 1), found.st_ctime_ns)
    except FileNotFoundError:
        return None
    except OSError:
        return Saved(stamp, b"")


class Watcher(Generic[T]):
    """Watches the files of `paths` (name → path) and calls `grade(name)` after a save, one call at a time.

    grade: its result goes to `report(name, result)` unless the file was saved meanwhile; an exception of it
    ends `run`. started: called before each run, also of one whose result is dropped. gone: called when a
    file was deleted. stop: makes the `grade` that is going on end soon; without it, grade is cancelled.
    What was there before `run` counts as graded; `request` grades a file without a save.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        grade: Callable[[str], Awaitable[T]],
        report: Callable[[str, T], None],
        *,
        started: Callable[[str], None] | None = None,
        gone: Callable[[str], None] | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        self._paths = dict(paths)
        self._grade = grade
        self._report = report
        self._started = started or _nothing
        self._gone = gone or _nothing
        self._stop = stop
        self._seen = {name: look(path) for name, path in paths.items()}
        self._due: dict[str, None] = {}  # what to grade, the save longest ago first
        self._ready = asyncio.Event()
        self._looking = asyncio.Lock()
        self._running: str | None = None
        self._before: Saved | None = None  # what the running grade was started on
        self._saved_again = asyncio.Event()

    async def run(self, moments: AsyncGenerator[None, None]) -> None:
        """Look at every moment (see changes.py), until cancelled or until `grade` fails."""
        worker = asyncio.create_task(self._work())
        watch = asyncio.create_task(self._watch(moments))
        try:
            await asyncio.wait([worker, watch], return_when=asyncio.FIRST_COMPLETED)
        finally:
            worker.cancel()
            watch.cancel()
            ended = await asyncio.gather(worker, watch, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    def request(self, name: str) -> None:
        """Grade this file as it is, after those that are due; nothing when it is due or being graded."""
        if name == self._running:
            if self._seen[name] == self._before:
                return
            self._saved_again.set()
        self._due.setdefault(name)
        self._ready.set()

    def note(self, name: str, data: bytes) -> None:
        """The tutor itself has written `data`: no save to grade, and no new text when it was there before."""
        found, before = look(self._paths[name]), self._seen[name]
        if found is None or found.data != data:
            return  # saved again by somebody else: the next look will find it
        self._seen[name] = found
        if name == self._running and before == self._before and before is not None and before.data == data:
            self._before = found

    async def _watch(self, moments: AsyncGenerator[None, None]) -> None:
        async with aclosing(moments):
            async for _ in moments:
                await self._settle()
                if self._due:
                    self._ready.set()

    async def _work(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            while True:
                await self._settle()
                if not self._due:
                    break
                name = next(iter(self._due))
                del self._due[name]
                await self._run_once(name)

    async def _settle(self) -> None:
        """Look; after a save look on until it is over: an editor may truncate first and then write."""
        async with self._looking:
            for _ in range(SETTLE_LOOKS):
                if not await self._look():
                    break
                await asyncio.sleep(SETTLE_SECONDS)

    async def _look(self) -> bool:
        """Whether a file was saved or deleted since the last look."""
        # In a thread: a network folder may answer slowly, and the keys must not wait for it.
        found = await asyncio.to_thread(_look_at_all, self._paths, self._seen)
        changed = [name for name, now in found.items() if now != self._seen[name]]
        for name in sorted(changed, key=lambda name: _touched(found[name])):
            now = self._seen[name] = found[name]
            self._due.pop(name, None)
            if now is None:
                self._gone(name)
            else:
                self._due[name] = None
            if name == self._running:
                self._saved_again.set()
        return bool(changed)

    async def _run_once(self, name: str) -> None:
        self._before = self._seen[name]
        self._saved_again.clear()
        self._running = name
        self._started(name)
        run = asyncio.ensure_future(self._grade(name))
        try:
            await self._finish(run)
            await self._settle()
        finally:
            self._running = None
            if not run.done():
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
        if not run.cancelled() and self._seen[name] == self._before:
            self._report(name, run.result())

    async def _finish(self, run: asyncio.Future[T]) -> None:
        """Wait for the run; end it early when its file has been saved again for a while."""
        again = asyncio.create_task(self._saved_again.wait())
        try:
            both: list[asyncio.Future[Any]] = [run, again]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            while not run.done():
                await asyncio.wait([run], timeout=GRACE_SECONDS)
                if not run.done():
                    (self._stop or run.cancel)()
        finally:
            again.cancel()


def _look_at_all(paths: Mapping[str, Path], seen: Mapping[str, Saved | None]) -> dict[str, Saved | None]:
    """All files as they were at one moment: while the first was read, a later one may have been saved, and
    then the order of their saves would be lost. So after a change everything is read until it stays the same.
    """
    found = {name: look(path) for name, path in paths.items()}
    for _ in range(LOOKS):
        before, found = found, found if found == seen else {name: look(path) for name, path in paths.items()}
        if found == before:
            break
    return found


def _touched(saved: Saved | None) -> int:
    return saved.touched if saved is not None else 0


def _nothing(name: str) -> None:
    pass
