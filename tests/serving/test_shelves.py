"""Bytes in memory and on disk: what is counted, what damage looks like, who cleans up after the dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tutor.serving.errors import IntegrityError
from tutor.serving.shelves import DiskShelf, MemoryShelf, Shelf

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["memory", "disk"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "memory":
        yield MemoryShelf()
    else:
        with DiskShelf(tmp_path) as made:
            yield made


def test_keeps_replaces_and_forgets(shelf: Shelf) -> None:
    assert shelf.put(1, b"one") and shelf.put(2, b"two two")
    assert (shelf.get(1), shelf.get(2), shelf.get(3)) == (b"one", b"two two", None)
    assert shelf.num_bytes == 10 + 2 * shelf.overhead
    assert shelf.put(1, b"longer than before")
    assert (shelf.get(1), shelf.num_bytes) == (b"longer than before", 25 + 2 * shelf.overhead)
    shelf.check_integrity()
    shelf.drop(1)
    shelf.drop(1)
    assert (shelf.keys(), shelf.get(1)) == ({2}, None)
    shelf.clear()
    shelf.check_integrity()
    assert (shelf.num_bytes, shelf.keys()) == (0, set())


def test_disk_bytes_are_the_size_of_the_files(tmp_path: Path) -> None:
    with DiskShelf(tmp_path) as shelf:
        shelf.put(1, b"x" * 1000)
        shelf.put(2, b"")
        assert shelf.num_bytes == sum(path.stat().st_size for path in shelf.folder.glob("*.kv"))
        shelf.drop(1)
        assert [path.name for path in shelf.folder.glob("*.kv")] == ["2.kv"]
        assert shelf.folder.stat().st_mode & 0o077 == 0, "others may read the saved sequences"
        folder = shelf.folder
    shelf.close()
    assert not folder.exists()
    shelf.check_integrity()


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut", "longer", "header", "empty", "folder"])
def test_damage_is_a_miss(tmp_path: Path, damage: str) -> None:
    with DiskShelf(tmp_path) as shelf:
        shelf.put(1, bytes(range(256)))
        shelf.put(2, b"sound")
        path = shelf.path(1)
        stored = bytearray(path.read_bytes())
        if damage in ("missing", "folder"):
            path.unlink()
            if damage == "folder":
                path.mkdir()
        elif damage == "flipped":
            stored[100] ^= 1
        elif damage == "cut":
            del stored[-1:]
        elif damage == "longer":
            stored += b"!"
        elif damage == "header":
            stored[0] ^= 1
        else:
            stored.clear()
        if damage not in ("missing", "folder"):
            path.write_bytes(stored)
        assert (shelf.get(1), shelf.get(2)) == (None, b"sound")
        shelf.drop(1)
        assert shelf.num_bytes == 5 + shelf.overhead


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with DiskShelf(tmp_path) as shelf:
        shelf.put(1, b"before")
        shelf.path(1).unlink()
        shelf.path(1).mkdir()
        (shelf.path(1) / "in the way").touch()
        assert not shelf.put(1, b"after")
        assert (shelf.get(1), shelf.num_bytes) == (None, 0)
        assert not list(shelf.folder.glob("*.part"))


def test_files_that_nobody_counts_are_noticed(tmp_path: Path) -> None:
    with DiskShelf(tmp_path) as shelf:
        (shelf.folder / "9.kv").touch()
        with pytest.raises(IntegrityError, match=r"nobody counts: \['9.kv'\]"):
            shelf.check_integrity()


KEEPER = """
import sys
from pathlib import Path
from tutor.serving.shelves import DiskShelf
shelf = DiskShelf(Path(sys.argv[1]))
shelf.put(1, b"left behind")
print(shelf.folder, flush=True)
sys.stdin.read()
"""


def test_folders_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    with process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        with DiskShelf(tmp_path) as shelf:
            assert (folder / "1.kv").exists() and shelf.folder != folder
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert (folder / "1.kv").exists()
        with DiskShelf(tmp_path) as shelf, DiskShelf(tmp_path) as other:
            assert not folder.exists()
            assert shelf.folder.exists() and other.folder.exists()
