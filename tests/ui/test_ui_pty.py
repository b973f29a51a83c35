"""`python -m tutor` in a real pseudo-terminal: it paints, quits with 0, and gives the terminal back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pty_terminal import Terminal

from tutor.trace.codec import write_trace
from tutor.trace.store import TraceStore

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tutor(folders: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str, columns: int = 80, rows: int = 24, **env: str) -> Terminal:
        environment = {**os.environ, "TERM": "xterm-256color", **env}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        terminal = Terminal([sys.executable, "-m", "tutor", *arguments], environment, columns, rows)
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


@contextmanager
def restored(terminal: Terminal) -> Iterator[None]:
    yield
    assert terminal.settings == terminal.before  # cooked mode, echo and all the rest as before
    assert b"\x1b[?1049h" in terminal.raw and terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(
        b"\x1b[?1049h"
    )
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.index(b"\x1b[?1049h")  # the cursor is back
    assert terminal.raw.rindex(b"\x1b[?1000l") > terminal.raw.rindex(b"\x1b[?1000h")  # and the mouse


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_map_then_q(tutor: Callable[..., Terminal], size: tuple[int, int]) -> None:
    terminal = tutor(columns=size[0], rows=size[1])
    terminal.until(lambda: "INFERENCE TUTOR" in terminal.text and "q quit" in terminal.text)
    terminal.until(lambda: "Tokens and" in terminal.text)
    with restored(terminal):
        terminal.type("q")
        assert terminal.ended() == 0
    assert "Traceback" not in terminal.raw.decode("utf-8", "replace")


def test_ctrl_c_quits_and_restores(tutor: Callable[..., Terminal]) -> None:
    terminal = tutor()
    terminal.until(lambda: "q quit" in terminal.text)
    with restored(terminal):
        terminal.type("\x03")
        assert terminal.ended() == 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the process's state from /proc")
def test_ctrl_z_stops_and_fg_paints_again(tutor: Callable[..., Terminal]) -> None:
    terminal = tutor()
    terminal.until(lambda: "INFERENCE TUTOR" in terminal.text and "q quit" in terminal.text)
    stat = Path(f"/proc/{terminal.process.pid}/stat")
    terminal.type("\x1a")
    terminal.until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    terminal.until(lambda: b"\x1b[?1049l" in terminal.raw)  # the shell's screen is back
    terminal.screen.reset()
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until(lambda: "INFERENCE TUTOR" in terminal.text and "q quit" in terminal.text)
    with restored(terminal):
        terminal.type("q")
        assert terminal.ended() == 0


def test_ascii_and_no_color_reach_the_wire(tutor: Callable[..., Terminal]) -> None:
    terminal = tutor("--ascii", NO_COLOR="1")
    terminal.until(lambda: "q quit" in terminal.text)
    terminal.type("q")
    assert terminal.ended() == 0
    assert terminal.raw.isascii()
    for color in (b"[38;2;", b"[38;5;", b"[48;2;", b"[48;5;"):
        assert color not in terminal.raw


def test_sixteen_colors_use_no_others(tutor: Callable[..., Terminal]) -> None:
    terminal = tutor(TERM="xterm", COLORTERM="")
    terminal.until(lambda: "q quit" in terminal.text)
    terminal.type("q")
    assert terminal.ended() == 0
    assert b"38;2;" not in terminal.raw and b"38;5;" not in terminal.raw


def test_replay_of_a_saved_trace(
    tutor: Callable[..., Terminal], serving_store: TraceStore, tmp_path: Path
) -> None:
    path = tmp_path / "saved.jsonl"
    write_trace(path, serving_store)
    terminal = tutor("replay", str(path))
    terminal.until(lambda: "step 0/3" in terminal.text and "hand-made" in terminal.text)
    terminal.type(".")
    terminal.until(lambda: "step 1/3" in terminal.text)
    with restored(terminal):
        terminal.type("\x1b")
        assert terminal.ended() == 0


def test_the_file_goes_to_the_editor_and_comes_back(
    tutor: Callable[..., Terminal], folders: Path, tmp_path: Path
) -> None:
    """$EDITOR gets the real terminal, and what it saved stands in the tutor's editor afterwards."""
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nstty -a | grep -q " echo " && echo "# from outside" > "$1"\n')
    script.chmod(0o755)
    terminal = tutor(columns=120, rows=40, EDITOR=str(script), VISUAL="")
    terminal.until(lambda: "q quit" in terminal.text)
    terminal.type("\r")
    terminal.until(lambda: "What happens after Enter" in terminal.text)
    for word in ("Question 1", "WHAT TO WATCH", "Now build it"):
        terminal.type("n")
        terminal.until(lambda word=word: word in terminal.text)
    terminal.type("\r")
    terminal.until(lambda: "def generate" in terminal.text)
    terminal.type("e")
    terminal.until(lambda: "# from outside" in terminal.text)
    assert (folders / "work" / "request.py").read_text() == "# from outside\n"
    terminal.until(lambda: "Not passed yet" in terminal.text)  # a save in any editor is checked
    with restored(terminal):
        terminal.type("\x1b")
        terminal.until(lambda: "Exercise" in terminal.text and "from outside" not in terminal.text)
        terminal.type("\x03")
        assert terminal.ended() == 0


def test_without_a_terminal_it_says_what_works(folders: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tutor"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert run.returncode == 3
    assert "needs a terminal" in run.stderr and "tutor list" in run.stderr
