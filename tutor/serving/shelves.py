"""Shelves: where the bytes of a tier lie. A shelf counts what it really holds and forgets nothing silently.

A shelf never raises for what can happen to storage: `put` answers False when there is no room on the disk,
`get` answers None when the bytes are gone or damaged. The store above treats both as a miss.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tutor.serving.errors import ensure

HEADER = struct.Struct("<4sIQ")  # magic, crc32 of the payload, its length
MAGIC = b"KVs1"
OWNED = "shelf-"
LOCK = ".lock"


class Shelf(Protocol):
    """Bytes by key. `overhead`: bytes that each item costs beside its own."""

    overhead: int

    @property
    def num_bytes(self) -> int: ...
    def keys(self) -> set[int]: ...
    def put(self, key: int, data: bytes) -> bool: ...
    def get(self, key: int) -> bytes | None: ...
    def drop(self, key: int) -> None: ...
    def clear(self) -> None: ...
    def check_integrity(self) -> None: ...


class MemoryShelf:
    """A dict of bytes in this process."""

    overhead = 0

    def __init__(self) -> None:
        self._items: dict[int, bytes] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def keys(self) -> set[int]:
        return set(self._items)

    def put(self, key: int, data: bytes) -> bool:
        self.drop(key)
        self._items[key] = data
        self._num_bytes += len(data)
        return True

    def get(self, key: int) -> bytes | None:
        return self._items.get(key)

    def drop(self, key: int) -> None:
        self._num_bytes -= len(self._items.pop(key, b""))

    def clear(self) -> None:
        self._items.clear()
        self._num_bytes = 0

    def check_integrity(self) -> None:
        held = sum(map(len, self._items.values()))
        ensure(held == self._num_bytes, f"the shelf holds {held} bytes and counts {self._num_bytes}")


class DiskShelf:
    """One file an item, in a folder of this shelf's own below `parent`. Close it, or use it in `with`.

    A file appears whole or not at all (written aside, then renamed) and carries a checksum. The folder is
    locked while its process lives; a new shelf removes the folders of dead ones. Raises OSError from the
    constructor only, when `parent` cannot be written.
    """

    overhead = HEADER.size

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        with _locked(parent / LOCK):
            _remove_orphans(parent)
            self.folder = Path(tempfile.mkdtemp(prefix=OWNED, dir=parent))  # readable by its owner only
            self._lock: int | None = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._sizes: dict[int, int] = {}

    @property
    def num_bytes(self) -> int:
        return sum(self._sizes.values())

    def keys(self) -> set[int]:
        return set(self._sizes)

    def put(self, key: int, data: bytes) -> bool:
        path = self.path(key)
        aside = path.with_suffix(".part")
        try:
            with open(aside, "wb") as file:
                file.write(HEADER.pack(MAGIC, zlib.crc32(data), len(data)))
                file.write(data)
            os.replace(aside, path)
        except OSError:
            _unlink(aside)
            self.drop(key)
            return False
        self._sizes[key] = len(data) + self.overhead
        return True

    def get(self, key: int) -> bytes | None:
        if key not in self._sizes:
            return None
        try:
            stored = self.path(key).read_bytes()
        except OSError:
            return None
        if len(stored) != self._sizes[key]:
            return None
        data = stored[HEADER.size :]
        return data if stored[: HEADER.size] == HEADER.pack(MAGIC, zlib.crc32(data), len(data)) else None

    def drop(self, key: int) -> None:
        if self._sizes.pop(key, None) is not None:
            _unlink(self.path(key))

    def clear(self) -> None:
        for key in list(self._sizes):
            self.drop(key)

    def close(self) -> None:
        """Remove the folder. May be called twice."""
        if self._lock is None:
            return
        self.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> DiskShelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, key: int) -> Path:
        return self.folder / f"{key}.kv"

    def check_integrity(self) -> None:
        ensure(self._lock is not None or not self._sizes, "a closed shelf still counts items")
        found = {path.name for path in self.folder.glob("*.*") if path.name != LOCK}
        known = {self.path(key).name for key in self._sizes}
        ensure(found <= known, f"files that nobody counts: {sorted(found - known)}")


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # the folder was removed or locked by someone else: there is nothing left to free
        return


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the operating system lets go of it when a process dies."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove_orphans(parent: Path) -> None:
    """Remove folders that no living process has locked. Runs under the parent's lock, as making one does."""
    for folder in parent.glob(f"{OWNED}*"):
        try:
            fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # not a folder of a shelf, or not ours
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its process lives
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
