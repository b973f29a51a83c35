"""Fixtures of the grading tests: tiny exercises that need no model, and a look at a process's descendants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Condition = Callable[[], bool]


@pytest.fixture(scope="session")
def exercises() -> Path:
    """The test exercises `sum` and `calls`."""
    return Path(__file__).parent / "exercises"


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache, data and workspace under tmp_path, also for child processes."""
    for name in ("CACHE", "DATA", "WORKSPACE"):
        monkeypatch.setenv(f"TUTOR_{name}", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture(scope="session")
def descendants() -> Callable[[int], set[int]]:
    """Children, grandchildren … of a process that are not zombies."""

    def find(pid: int) -> set[int]:
        table = _parents()
        found: set[int] = set()
        while more := {child for child, parent in table.items() if parent in found | {pid}} - found:
            found |= more
        return found

    return find


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                rest = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if rest[0] != b"Z":
                found[int(folder.name)] = int(rest[1])
    return found


@pytest.fixture(scope="session")
def wait_until() -> Callable[[Condition], bool]:
    """Look again until the condition holds; False when it does not within ten seconds."""

    def wait(condition: Condition) -> bool:
        end, pause = time.monotonic() + 10.0, threading.Event()
        while time.monotonic() < end:
            if condition():
                return True
            pause.wait(0.02)  # a busy look at /proc would starve what it waits for
        return condition()

    return wait
