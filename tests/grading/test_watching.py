"""The watcher on real files: however an editor saves, the last saved content is the last one graded."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tutor.grading.changes import changes
from tutor.grading.watching import GRACE_SECONDS, Watcher, look

ROOT = Path(__file__).parents[2]
SAVES = 1000
BURST = 20
NAMES = ("one", "two")
WAIT = 20.0


class Log:
    """A grader that reads the file at some moment of a run of a few milliseconds, and what it reported."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.paths = {name: folder / f"{name}.py" for name in NAMES}
        self.random = random.Random(seed)
        self.reported: list[tuple[str, str]] = []
        self.runs: list[str] = []
        self.read: list[str] = []
        self.gone: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.stopped = 0

    async def grade(self, name: str) -> str:
        before, after = self.random.random() * 0.01, self.random.random() * 0.01
        await asyncio.sleep(before)
        text = self.paths[name].read_text() if self.paths[name].exists() else ""
        self.read.append(text)
        await asyncio.sleep(after)
        await self.hold.wait()
        return text

    def last(self, name: str) -> str | None:
        return next((text for other, text in reversed(self.reported) if other == name), None)


@asynccontextmanager
async def watching(log: Log, folder: Path, poll: bool = False) -> AsyncIterator[Watcher[str]]:
    def stop() -> None:
        log.stopped += 1
        log.hold.set()

    watcher = Watcher(
        log.paths, log.grade, lambda name, text: log.reported.append((name, text)),
        started=log.runs.append, gone=log.gone.append, stop=stop,
    )  # fmt: skip
    task = asyncio.create_task(watcher.run(changes(folder, poll)))
    try:
        yield watcher
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), f"the watcher ended by itself: {task}"


async def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    try:
        async with asyncio.timeout(WAIT):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"did not happen within {WAIT} s: {what()}") from None


def truncate_and_write(path: Path, text: str) -> None:
    path.write_text(text)


def write_in_two_parts(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text[:5])
        file.flush()
        threading.Event().wait(0.002)
        file.write(text[5:])


def rename_over(path: Path, text: str) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(text)
    beside.replace(path)


def back_up_first(path: Path, text: str) -> None:
    """As vim does with backupcopy=no: the old file gets another name, a new one is written."""
    if path.exists():
        path.replace(path.with_suffix(".py~"))
    path.write_text(text)


def delete_and_create(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    threading.Event().wait(0.001)
    path.write_text(text)


def same_size_and_time(path: Path, text: str) -> None:
    """As rsync -t or a restored copy: neither size nor time of change tell the two apart."""
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns) if path.exists() else None
    path.write_text(text)
    if times:
        os.utime(path, ns=times)


def link_elsewhere(path: Path, text: str) -> None:
    """The file is a link, and its target lies outside the folder."""
    target = path.parent.parent / f"{path.name}.{text.split()[-1]}"
    target.write_text(text)
    link = path.with_suffix(".link")
    link.symlink_to(target)
    link.replace(path)


def append_and_cut(path: Path, text: str) -> None:
    with path.open("a+") as file:
        file.truncate(0)
        file.write(text)


WAYS = (
    truncate_and_write, write_in_two_parts, rename_over, back_up_first, delete_and_create, same_size_and_time,
    link_elsewhere, append_and_cut,
)  # fmt: skip


def burst(paths: dict[str, Path], first: int, dice: random.Random) -> tuple[str, dict[str, str]]:
    """BURST saves, some at once, some a few milliseconds apart. Returns the last name and the last texts."""
    name, last = "", {}
    for number in range(first, first + BURST):
        name = dice.choice(NAMES)
        text = f"x = {'#' * dice.randrange(3)} {number:05}"
        if number == first + BURST - 1:  # later than the save before by the clock of any file system here
            threading.Event().wait(0.012)
        dice.choice(WAYS)(paths[name], text)
        last[name] = text
        if dice.random() < 0.5:
            threading.Event().wait(dice.random() * 0.012)
    return name, last


async def test_a_thousand_saves(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    log, dice = Log(folder), random.Random(4)
    seen: list[int] = []
    await asyncio.to_thread(int)  # the thread pools exist before descriptors are counted
    before = _descriptors()
    async with watching(log, folder):
        for first in range(0, SAVES, BURST):
            name, last = await asyncio.to_thread(burst, log.paths, first, dice)
            await until(
                lambda last=last: all(log.last(n) == text for n, text in last.items()),
                lambda last=last: f"saved {last}, graded {log.reported[-4:]}",
            )
            assert log.reported[-1] == (name, last[name]), "the file saved last is graded last"
            seen.append(_descriptors())  # a look may hold a file open just now
        await until(lambda: _descriptors() <= min(seen), lambda: f"descriptors leak: {seen}")
    await until(lambda: _descriptors() <= before, _descriptors)
    assert len(log.runs) < SAVES, "saves in a row are graded together"


async def test_polling_sees_saves_too(tmp_path: Path) -> None:
    log, dice = Log(tmp_path), random.Random(5)
    async with watching(log, tmp_path, poll=True):
        for first in range(0, 5 * BURST, BURST):
            _, last = await asyncio.to_thread(burst, log.paths, first, dice)
            await until(lambda last=last: all(log.last(n) == text for n, text in last.items()))


async def test_a_result_of_a_text_that_was_replaced_is_dropped(tmp_path: Path) -> None:
    log = Log(tmp_path)
    async with watching(log, tmp_path):
        log.hold.clear()
        log.paths["one"].write_text("old")
        await until(lambda: log.read == ["old"])
        log.paths["one"].write_text("new")
        await until(lambda: log.stopped)  # the run was in the way for longer than the grace
        await until(lambda: log.reported)
    assert log.reported == [("one", "new")] and log.runs == ["one", "one"]


async def test_a_save_that_nobody_notified_of_is_found_after_the_run(tmp_path: Path) -> None:
    path, reported, done = tmp_path / "one.py", list[str](), asyncio.Event()
    path.write_text("old")

    async def grade(name: str) -> str:
        text = path.read_text()
        if text == "old":
            path.write_text("new")
        return text

    async def silence() -> AsyncGenerator[None, None]:
        await asyncio.Event().wait()
        yield

    def report(name: str, text: str) -> None:
        reported.append(text)
        done.set()

    watcher = Watcher({"one": path}, grade, report)
    watcher.request("one")
    task = asyncio.create_task(watcher.run(silence()))
    await until(done.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert reported == ["new"]


async def test_a_short_run_is_not_stopped_by_a_save(tmp_path: Path) -> None:
    log = Log(tmp_path)
    async with watching(log, tmp_path):
        log.hold.clear()
        log.paths["one"].write_text("old")
        await until(lambda: log.read == ["old"])
        log.paths["one"].write_text("new")
        asyncio.get_running_loop().call_later(GRACE_SECONDS / 4, log.hold.set)
        await until(lambda: log.reported)
    assert log.stopped == 0 and log.reported == [("one", "new")]


async def test_saving_the_same_text_grades_again(tmp_path: Path) -> None:
    log = Log(tmp_path)
    async with watching(log, tmp_path):
        for number in range(1, 4):
            log.paths["one"].write_text("same")
            await until(lambda number=number: len(log.reported) == number)
    assert log.reported == [("one", "same")] * 3


async def test_only_saves_and_requests_are_graded(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.paths["one"].write_text("there before")
    async with watching(log, tmp_path) as watcher:
        (tmp_path / "other.py").write_text("not an exercise")
        log.paths["two"].write_text("saved")
        await until(lambda: log.reported)
        log.paths["one"].write_text("by the tutor")
        watcher.note("one", b"by the tutor")
        log.paths["one"].chmod(0o600)
        watcher.request("two")
        watcher.request("two")
        await until(lambda: len(log.reported) == 2)
        log.paths["two"].unlink()
        await until(lambda: log.gone)
    assert log.reported == [("two", "saved")] * 2 and log.gone == ["two"]


async def test_the_folder_goes_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    log = Log(folder)
    async with watching(log, folder):  # it is not there yet
        for number in range(3):
            folder.mkdir()
            log.paths["one"].write_text(f"text {number}")
            await until(lambda number=number: log.last("one") == f"text {number}")
            shutil.rmtree(folder)
            await until(lambda number=number: len(log.gone) == number + 1)


async def test_a_grader_that_fails_ends_the_watcher(tmp_path: Path) -> None:
    async def grade(name: str) -> str:
        raise ZeroDivisionError(name)

    watcher = Watcher({"one": tmp_path / "one.py"}, grade, lambda name, text: None)
    watcher.request("one")
    with pytest.raises(ZeroDivisionError, match="one"):
        async with asyncio.timeout(WAIT):
            await watcher.run(changes(tmp_path))


def test_what_cannot_be_read_is_something_all_the_same(tmp_path: Path) -> None:
    assert look(tmp_path / "nothing") is None
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    for name in ("loop", "pipe", "."):
        found = look(tmp_path / name)
        assert found is not None and found.data == b""


def test_without_notifications_it_polls(tmp_path: Path) -> None:
    """In a user namespace where the kernel grants no inotify instance at all."""
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tutor.grading.changes import changes\nfrom tutor.grading.watching import Watcher\n"
        "async def main():\n"
        "    folder, done = Path(sys.argv[1]), asyncio.Event()\n"
        "    async def grade(name): return (folder / name).read_text()\n"
        "    def report(name, text): print('graded', text, flush=True); done.set()\n"
        "    watcher = Watcher({'a.py': folder / 'a.py'}, grade, report)\n"
        "    task = asyncio.create_task(watcher.run(changes(folder)))\n"
        "    (folder / 'a.py').write_text('hello')\n"
        "    await asyncio.wait([task, asyncio.create_task(done.wait())], timeout=20,"
        " return_when='FIRST_COMPLETED')\n"
        "    print('ended' if task.done() else 'goes on')\n"
        "asyncio.run(main())\n"
    )
    limit = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
    command = ["unshare", "-Ur", "sh", "-c", limit, "sh", sys.executable, "-c", code, str(tmp_path)]
    if subprocess.run([*command[:5], "sh", "true"], capture_output=True).returncode:
        pytest.skip("no unprivileged user namespace here")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "graded hello\ngoes on\n", done.stderr


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
