"""Reference values that do not depend on the learner: kept in memory, and on disk as long as they are valid.

A file is one value, as a MessagePack tree behind its SHA-256. Its path holds everything the value
depends on: model digest, exercise, version, check.py, seed and key. A file that does not fit is made again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tutor import resources
from tutor.grading.errors import ReplyError
from tutor.grading.exercise import Exercise
from tutor.grading.values import Packer, Unpacker

_DIGEST = 32
_MEMORY_LIMIT = 128 * 2**20

_packer = Packer(records=False)
_unpacker = Unpacker()


class Memory:
    """What one judge keeps between runs, oldest dropped first once it holds more than `limit` bytes."""

    def __init__(self, limit: int = _MEMORY_LIMIT) -> None:
        self._limit = limit
        self._held: dict[Path, tuple[Any, int]] = {}

    def get(self, path: Path) -> tuple[Any, int] | None:
        return self._held.get(path)

    def put(self, path: Path, value: Any, size: int) -> None:
        self._held[path] = (value, size)
        while len(self._held) > 1 and sum(size for _, size in self._held.values()) > self._limit:
            del self._held[next(iter(self._held))]


class ExerciseReferences:
    """The references of one run of one exercise; `digest` names the model."""

    def __init__(self, exercise: Exercise, seed: int, digest: Callable[[], str], memory: Memory) -> None:
        self._exercise = exercise
        self._seed = seed
        self._digest = digest
        self._memory = memory
        self._check = hashlib.sha256(exercise.check_file.read_bytes()).hexdigest()[:12]

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The stored value, or `make()`, stored. Arrays come back read-only."""
        path = self._path(key)
        if (held := self._memory.get(path)) is not None:
            return held[0]
        stored = read(path)
        if stored is None:
            tree = _packer.pack(make())
            stored = (_unpacker.unpack(tree), write(path, tree))
        value, size = _frozen(stored[0]), stored[1]
        self._memory.put(path, value, size)
        return value

    def _path(self, key: str) -> Path:
        exercise = self._exercise
        run = f"{exercise.id}-v{exercise.version}-{self._check}-seed{self._seed}"
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return references_dir() / self._digest()[:16] / run / f"{name}.bin"


def references_dir() -> Path:
    """Where the references are kept on disk."""
    return resources.cache_dir() / "references"


def read(path: Path) -> tuple[Any, int] | None:
    """(value, size of the file in bytes), or None when there is no valid file."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = data[_DIGEST:]
    if hashlib.sha256(body).digest() != data[:_DIGEST]:
        return None
    try:
        return _unpacker.unpack(msgspec.msgpack.decode(body)), len(data)
    except (msgspec.DecodeError, ReplyError):
        return None


def write(path: Path, tree: Any) -> int:
    """Write beside the file, then rename: a reader sees all of it or nothing. Returns the size in bytes.

    A cache that cannot be written is no reason to stop: the value is then made again next time.
    """
    body = msgspec.msgpack.encode(tree)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
    except OSError:
        return len(body)
    return len(body) + _DIGEST


def _frozen(value: Any) -> Any:
    """Make arrays read-only, so that a check cannot change what later runs will be given."""
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, dict):
        for item in value.values():
            _frozen(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _frozen(item)
    return value
