"""Fixtures of the grading tests: tiny exercises that need no model, and a look at a process's descendants."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from hostile_bank import Places

from tutor.grading.client import JudgeClient
from tutor.grading.references import references_dir

EXERCISES = Path(__file__).parent / "exercises"

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


@pytest.fixture(scope="module")
def one_check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test exercises with one check in `sum`, so that a case costs one broken guest."""
    folder = tmp_path_factory.mktemp("exercises")
    for name in ("sum", "calls"):
        shutil.copytree(EXERCISES / name, folder / name)
    check = folder / "sum" / "check.py"
    check.write_text(check.read_text().partition('@check("empty list"')[0])
    return folder


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["namespaces", "plain"])
async def judge(request: pytest.FixtureRequest, one_check: Path) -> AsyncIterator[JudgeClient]:
    """A judge of the exercises of `one_check`."""
    client = JudgeClient(exercises=one_check, warm=False, namespaces=request.param == "namespaces")
    yield client
    await client.close()


@pytest.fixture(scope="module")
def places(one_check: Path, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """What a submission may try to read; all of it is there and answers right."""
    references_dir().mkdir(parents=True, exist_ok=True)
    (references_dir() / "model").mkdir(exist_ok=True)
    neighbour = tmp_path_factory.mktemp("neighbour")
    shutil.copy(EXERCISES / "sum" / "solution.py", neighbour / "total.py")
    return Places(one_check, references_dir(), neighbour)
