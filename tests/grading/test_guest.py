"""The guest process on its own, and what the learner reads when the file itself is the problem."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tutor.grading.client import run_check
from tutor.grading.engine import Engine
from tutor.grading.exercise import Exercise, load_exercise
from tutor.grading.pool import GuestPool
from tutor.grading.process import GuestProcess
from tutor.grading.references import Memory
from tutor.grading.run import grade
from tutor.grading.verdict import Verdict

RIGHT = "def total(numbers):\n    return sum(numbers)\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[GuestPool]:
    guests = GuestPool()
    guests.refill()
    yield guests
    guests.close()


@pytest.fixture(scope="module")
def exercise(exercises: Path) -> Exercise:
    return load_exercise(exercises / "sum")


def run(pool: GuestPool, exercise: Exercise, path: Path, seed: int = 1) -> Verdict:
    verdict = grade(exercise, path, seed=seed, engine=Engine(), pool=pool, memory=Memory())
    pool.refill()
    return verdict


FILES = {
    "not UTF-8": (b"# caf\xe9\n" + RIGHT.encode(), "is not UTF-8 text (line 1)"),
    "UTF-16": (RIGHT.encode("utf-16"), "is saved as UTF-16"),
    "zero byte": (RIGHT.encode() + b"\0", "holds a zero byte"),
    "huge": (b"#" * (2**20 + 1), "larger than 1 MiB"),
    "syntax": (b"def total(numbers:\n    return 0\n", "total.py, line 1 is not valid Python: "),
    "indent": (b"def total(numbers):\nreturn 0\n", "total.py, line 2 is not valid Python: expected"),
    "no entry": (b"def sum_up(numbers):\n    return 0\n", "total.py defines no 'total'"),
    "entry is a number": (b"total = 3\n", "total.py defines no 'total'"),
    "empty": (b"", "total.py defines no 'total'"),
    "raises": (b"x = 1\ny = x / 0\n" + RIGHT.encode(), "ZeroDivisionError: division by zero when it is"),
    "missing import": (b"import numpyy\n", "ModuleNotFoundError: No module named 'numpyy'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_checked(
    pool: GuestPool, exercise: Exercise, tmp_path: Path, name: str
) -> None:
    data, phrase = FILES[name]
    path = tmp_path / "total.py"
    path.write_bytes(data)
    verdict = run(pool, exercise, path)
    assert (verdict.status, verdict.checks) == ("error", ())
    assert phrase in verdict.message
    assert "Traceback" not in verdict.message and "guest.py" not in verdict.message


def test_missing_file_and_folder(pool: GuestPool, exercise: Exercise, tmp_path: Path) -> None:
    assert "There is no file" in run(pool, exercise, tmp_path / "total.py").message
    verdict = run(pool, exercise, tmp_path)
    assert verdict.status == "error" and "is a folder" in verdict.message


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + RIGHT.encode(), RIGHT.replace("\n", "\r\n").encode()])
def test_bom_and_crlf_are_fine(pool: GuestPool, exercise: Exercise, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "total.py"
    path.write_bytes(data)
    assert run(pool, exercise, path).passed


def test_a_traceback_starts_at_the_learners_line(pool: GuestPool, exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / "total.py"
    path.write_text(
        "import numpy as np\n\n\ndef total(numbers):\n    return helper(numbers)\n\n\n"
        "def helper(numbers):\n    return int(np.stack([np.zeros(2), np.zeros(3)]).sum())\n"
    )
    result = run(pool, exercise, path).checks[0]
    assert (result.status, result.where) == ("fail", "total.py:9")
    assert result.message.splitlines() == [
        "Your code raises ValueError: all input arrays must have the same shape during call 1 of total.",
        "total.py, line 5, in total",
        "    return helper(numbers)",
        "total.py, line 9, in helper",
        "    return int(np.stack([np.zeros(2), np.zeros(3)]).sum())",
    ]


def test_other_files_of_the_workspace_can_be_imported(
    pool: GuestPool, exercise: Exercise, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "random.py").write_text("raise RuntimeError('must not replace the standard library')\n")
    path = tmp_path / "total.py"
    path.write_text(
        "import functools, random\nfrom mine import add\n\n\n"
        "def total(numbers):\n    return functools.reduce(add, numbers, 0)\n"
    )
    assert run(pool, exercise, path).passed


def test_each_run_gets_a_fresh_process(pool: GuestPool, exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / "total.py"
    path.write_text("import os\nprint(os.getcwd())\n" + RIGHT)
    folders = {run(pool, exercise, path).output for _ in range(3)}
    assert len(folders) == 3


def test_what_is_printed_is_kept_also_after_a_timeout(
    pool: GuestPool, exercise: Exercise, tmp_path: Path
) -> None:
    path = tmp_path / "total.py"
    path.write_text("def total(numbers):\n    print('thinking about', numbers)\n    while True: pass\n")
    verdict = run(pool, exercise, path)
    assert verdict.status == "timeout"
    assert verdict.output.startswith("thinking about [")


def test_the_seed_decides_the_inputs(pool: GuestPool, exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / "total.py"
    path.write_text("def total(numbers):\n    print(numbers)\n    return sum(numbers)\n")
    outputs = [run(pool, exercise, path, seed).output for seed in (1, 1, 2)]
    assert outputs[0] == outputs[1] != outputs[2]


def test_a_dead_spare_guest_is_replaced(exercise: Exercise, exercises: Path) -> None:
    guests = GuestPool()
    try:
        guests.refill()
        assert guests._spare is not None
        spare = guests._spare
        spare._process.kill()
        spare._process.wait()
        assert run(guests, exercise, exercises / "sum" / "solution.py").passed
    finally:
        guests.close()


def test_what_a_guest_left_is_removed_after_the_verdict(
    exercise: Exercise, exercises: Path, tmp_path: Path
) -> None:
    """However deep it is: an ended guest's folder waits for `refill`, which follows the verdict."""
    path = tmp_path / "total.py"
    deep = "import os\n\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\n\n\n"
    path.write_text(deep + RIGHT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    guests = GuestPool(scratch=scratch)

    def left() -> int:
        return len(list(scratch.iterdir()))

    try:
        for file in (path, exercises / "sum" / "solution.py"):
            verdict = grade(exercise, file, seed=1, engine=Engine(), pool=guests, memory=Memory())
            assert verdict.passed, verdict
        assert left() > 1
        guests.refill()
        assert left() == 1, "that of the spare guest"
    finally:
        guests.close()
    assert left() == 0


def test_namespaces_cut_the_network_off(exercises: Path, tmp_path: Path) -> None:
    guest = GuestProcess(namespaces=True, scratch=tmp_path)
    try:
        guest.wait_ready()
        notes = guest.notes
    finally:
        guest.close()
        guest.remove_folder()
    path = tmp_path / "total.py"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        path.write_text(
            f"import socket\n\n\ndef total(numbers):\n"
            f"    socket.create_connection({address!r}, 0.5).close()\n    return sum(numbers)\n"
        )
        verdict = run_check("sum", path, exercises=exercises)
    if notes:  # this kernel refuses the namespace: then the guest says so, and the connection works
        assert "stay reachable" in notes[0] and verdict.passed
    else:
        assert "Network is unreachable" in verdict.checks[0].message
