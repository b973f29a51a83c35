"""Files that are unusual or no Python file at all: read as Python reads them, or refused in a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tutor.grading.client import JudgeClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODE = "def total(numbers):\n    return sum(numbers)\n"
Make = Callable[[Path], object]


def _below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


FILES: dict[str, tuple[Make, str, str]] = {
    "with a mark": (lambda path: path.write_bytes(b"\xef\xbb\xbf" + CODE.encode()), "pass", ""),
    "with CRLF": (lambda path: path.write_bytes(CODE.replace("\n", "\r\n").encode()), "pass", ""),
    "with CR": (lambda path: path.write_bytes(CODE.replace("\n", "\r").encode()), "pass", ""),
    "with tabs": (lambda path: path.write_text(CODE.replace("    ", "\t")), "pass", ""),
    "without a last line end": (lambda path: path.write_text(CODE.rstrip()), "pass", ""),
    "with a form feed": (lambda path: path.write_text(f"\f\n{CODE}"), "pass", ""),
    "tabs and spaces": (
        lambda path: path.write_text("def total(numbers):\n\tx = 1\n        return x\n"),
        "error",
        "line 3 is not valid Python: inconsistent use of tabs",
    ),
    "latin-1": (
        lambda path: path.write_bytes(b"# caf\xe9\n" + CODE.encode()),
        "error",
        "not UTF-8 text (line 1)",
    ),
    "UTF-16": (lambda path: path.write_bytes(CODE.encode("utf-16")), "error", "saved as UTF-16"),
    "with a zero byte": (lambda path: path.write_text(CODE + "\0"), "error", "zero byte"),
    "empty": (lambda path: path.write_text(""), "error", "defines no 'total'"),
    "too big": (lambda path: path.write_bytes(b"#" * (2**20 + 1)), "error", "larger than 1 MiB"),
    "a name that is no function": (
        lambda path: path.write_text("total = 3\n"),
        "error",
        "defines no 'total'",
    ),
    "an async function": (
        lambda path: path.write_text(f"async {CODE}"),
        "fail",
        "a coroutine",
    ),
    "deeply nested source": (
        lambda path: path.write_text(f"x = {'(' * 5000}{')' * 5000}\n{CODE}"),
        "error",
        "total.py",
    ),
    "a folder": (lambda path: path.mkdir(), "error", "is a folder"),
    "a loop of links": (lambda path: path.symlink_to(path), "error", "cannot be read"),
    "a link to nothing": (lambda path: path.symlink_to(path.parent / "nothing"), "error", "There is no file"),
    "a named pipe": (os.mkfifo, "error", "no regular file"),
    "a device without end": (lambda path: path.symlink_to("/dev/zero"), "error", "no regular file"),
    "a random device": (lambda path: path.symlink_to("/dev/random"), "error", "no regular file"),
}


@pytest.mark.parametrize("judge", ["namespaces"], indirect=True)
@pytest.mark.parametrize("name", FILES)
async def test_an_unusual_file_is_read_or_refused(judge: JudgeClient, name: str, tmp_path: Path) -> None:
    make, status, phrase = FILES[name]
    (tmp_path / "work").mkdir()
    path = tmp_path / "work" / "total.py"
    make(path)
    verdict = await judge.verdict("sum", path)
    assert verdict.status == status, verdict
    assert phrase in " ".join([verdict.message, *(result.message for result in verdict.checks)])
