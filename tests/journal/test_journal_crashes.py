"""kill -9, several writers at once, a full disk: what was acknowledged is there."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tutor.journal.events import ExerciseChecked, LessonOpened
from tutor.journal.store import Journal, JournalError

ROOT = Path(__file__).parents[2]

# Prints an event's id only after append has returned. argv: folder, number of events (0 = until killed)
WRITER = """
import itertools, sys
from pathlib import Path
from tutor.journal.events import ExerciseChecked
from tutor.journal.store import Journal
journal, count = Journal(Path(sys.argv[1])), int(sys.argv[2])
for n in itertools.count() if count == 0 else range(count):
    event = ExerciseChecked("paged", "paged", passed=False, failed_checks=("x" * (n * 37 % 5000),))
    journal.append(event)
    print(event.id, flush=True)
"""


def _writer(folder: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _ids(output: str) -> list[str]:
    """Printed ids; a last line without its end was being printed when the kill came."""
    return [line.strip() for line in output.splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.timeout(240)
def test_fifty_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    rng = random.Random(20)
    acknowledged: list[str] = []
    for _ in range(50):
        writer = _writer(tmp_path, 0)
        assert writer.stdout is not None
        first = writer.stdout.readline()  # it is writing now
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(timeout=rng.uniform(0.0, 0.05))
        writer.kill()
        rest = writer.stdout.read()
        writer.stdout.close()
        assert writer.wait() == -9
        acknowledged += _ids(first + rest)
        contents = journal.read()
        there = [event.id for event in contents.events]
        assert set(acknowledged) <= set(there)
        assert len(there) == len(set(there))
        position = {id: index for index, id in enumerate(there)}
        assert acknowledged == sorted(acknowledged, key=position.__getitem__)
    assert len(acknowledged) > 100
    # Each kill can add at most the one event that was written but not yet acknowledged.
    assert len(there) - len(acknowledged) <= 50


def test_four_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [_writer(tmp_path, 60) for _ in range(4)]
    printed = [_ids(writer.communicate(timeout=120)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    assert [len(ids) for ids in printed] == [60, 60, 60, 60]
    contents = Journal(tmp_path).read()
    assert contents.warnings == ()
    there = [event.id for event in contents.events]
    assert len(there) == 240
    for ids in printed:
        own = set(ids)
        assert [id for id in there if id in own] == ids  # each writer's events are in its own order


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount).returncode != 0:
        pytest.skip("mounting a small disk needs root; the file size limit test covers the same path")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(20_000))
        journal = Journal(disk / "data")
        acknowledged = []
        with pytest.raises(JournalError) as caught:
            for _ in range(1000):
                event = ExerciseChecked("a", "a", passed=False, failed_checks=("y" * 999,))
                journal.append(event)
                acknowledged.append(event)
        assert "cannot be written: No space left on device. Free some space" in str(caught.value)
        assert len(acknowledged) > 10
        contents = journal.read()
        assert contents.events == tuple(acknowledged)
        assert contents.warnings == ()  # the half line was taken back

        ballast.unlink()
        after = LessonOpened("later")
        journal.append(after)
        assert journal.read().events == (*acknowledged, after)


LIMITED = """
import resource, sys
from pathlib import Path
from tutor.journal.events import ExerciseChecked
from tutor.journal.store import Journal, JournalError
journal = Journal(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    while True:
        event = ExerciseChecked("a", "a", passed=False, failed_checks=("y" * 999,))
        journal.append(event)
        print(event.id)
except JournalError as error:
    print(error)
"""


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stderr == ""
    *ids, message = done.stdout.splitlines()
    assert "cannot be written: File too large. Free some space" in message
    contents = Journal(tmp_path).read()
    assert [event.id for event in contents.events] == ids
    assert len(ids) > 10
    assert contents.warnings == ()


def test_a_lock_that_is_held_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    monkeypatch.setattr("tutor.journal.store._LOCK_SECONDS", 0.05)
    with FileLock(tmp_path / "journal.lock"), pytest.raises(JournalError, match="Close the other tutor"):
        Journal(tmp_path).append(LessonOpened("a"))


def test_the_event_is_synced_before_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 cannot show this (the kernel keeps its pages); a power cut would."""
    journal = Journal(tmp_path)
    real_fsync = os.fsync
    synced: list[bytes] = []

    def fsync(fd: int) -> None:
        real_fsync(fd)
        synced.append(
            journal.path.read_bytes() if os.path.samestat(os.fstat(fd), journal.path.stat()) else b""
        )

    monkeypatch.setattr(os, "fsync", fsync)
    first, second = LessonOpened("a"), LessonOpened("b")
    journal.append(first)
    assert first.id.encode() in synced[0]
    assert synced[1] == b""  # the folder: the file was new
    journal.append(second)
    assert second.id.encode() in synced[2]
    assert len(synced) == 3
