"""A small course and an empty journal for in-process runs; a real pty for what depends on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tutor.cli.main import cli
from tutor.journal.store import Journal

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]

LESSON = """## Blocks

A block of 16 tokens takes {{ block_bytes("smollm2-135m", 16) | kib }} → small.

```
┌──┐
│ok│
└──┘
```

## Sources

- A paper.

## Recap

Done.
"""

NEEDS: dict[str, tuple[str, ...]] = {
    "root": (),
    "gap": ("root",),
    "leaf": ("root", "gap"),
    "far": ("leaf", "root", "twin"),
    "twin": ("root",),
}


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five lessons, of which `gap` is not written; `leaf` is also called `The old leaf`."""
    folder = tmp_path / "content"
    for number, (id, needs) in enumerate(NEEDS.items(), 1):
        lesson = folder / f"{number:02d}-{id}"
        lesson.mkdir(parents=True)
        aliases = ["The old leaf"] if id == "leaf" else []
        (lesson / "lesson.toml").write_text(
            f'id = "{id}"\ntitle = "The {id} of it"\naliases = {aliases!r}\nline = "About {id}."\n'
            f'needs = {list(needs)!r}\nminutes = 20\nobjectives = ["Know it."]\n'
        )
        if id != "gap":
            (lesson / "lesson.md").write_text(LESSON)
    monkeypatch.setattr("tutor.resources.content_dir", lambda: folder)
    return folder


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("TUTOR_DATA", str(tmp_path / "data"))
    return Journal()


@pytest.fixture
def run(content: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Run:
    """run("list", "--json") -> click's Result, with the small course and an empty journal."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*args: str, **env: str) -> Result:
        return CliRunner().invoke(cli, args, prog_name="tutor", env=env)

    return call


def tutor(*args: str, data: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The real command in a process of its own, its output in pipes."""
    return subprocess.run(
        [sys.executable, "-m", "tutor", *args],
        capture_output=True,
        cwd=ROOT,
        env=_environment(data) | env,
        timeout=60,
    )


def on_terminal(*args: str, data: Path, columns: int = 80, **env: str) -> str:
    """What the real command writes to a terminal of `columns` x 24."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tutor", *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env=_environment(data) | env,
    )
    os.close(slave)
    output = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux says EIO once the other end is closed
            break
        if not part:
            break
        output += part
    os.close(master)
    assert process.wait(timeout=60) == 0
    return output.decode()


def _environment(data: Path) -> dict[str, str]:
    dropped = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return kept | {"TUTOR_DATA": str(data), "TERM": "xterm-256color", "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}


@pytest.fixture(name="tutor")
def _tutor() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    return tutor


@pytest.fixture(name="on_terminal")
def _on_terminal() -> Callable[..., str]:
    return on_terminal
