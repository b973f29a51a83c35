"""`tutor serve --watch` and the full-screen `tutor attach` in a real terminal of 80x24, on real servers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from pty_terminal import Terminal

Open = Callable[..., Terminal]
TUTOR = [sys.executable, "-m", "tutor"]
SERVE = ["serve", "--max-num-seqs", "2", "--num-blocks", "64", "--grace", "0.2"]


@pytest.fixture
def tutor(tmp_path: Path) -> Iterator[Open]:
    """Start the command in a terminal; its journal is this test's own."""
    opened: list[Terminal] = []

    def start(*arguments: str, term: str = "xterm-256color", columns: int = 80) -> Terminal:
        environment = {**os.environ, "TERM": term, "TUTOR_DATA": str(tmp_path / "data")}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "TUTOR_API_KEY"):
            environment.pop(name, None)
        terminal = Terminal([*TUTOR, *arguments], environment, columns, 24)
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


@contextmanager
def serving(port: int) -> Iterator[str]:
    """`tutor serve` without a screen; it ends by Ctrl-C."""
    with subprocess.Popen(
        [*TUTOR, *SERVE, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Serving at http"), line
        try:
            yield line.split()[2]
        finally:
            process.send_signal(signal.SIGINT)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def quits(terminal: Terminal, key: str) -> None:
    """The key ends it with 0, and the terminal is as it was."""
    terminal.type(key)
    assert terminal.ended() == 0
    assert terminal.settings == terminal.before
    assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
    assert b"Traceback" not in terminal.raw


def answer(url: str, count: int) -> None:
    """Ask for a completion of `count` tokens and wait for it."""
    body = {"prompt": "Say something.", "max_tokens": count, "ignore_eos": True}
    said = httpx2.post(f"{url}/v1/completions", json=body, timeout=60).json()
    assert said["usage"]["completion_tokens"] == count


def number_after(words: str, text: str) -> float:
    found = re.search(rf"{words}\s+([\d.,]+)", text)
    return float(found[1].replace(",", "")) if found else 0.0


def test_serve_watch_shows_its_clients_and_frees_the_port(tutor: Open) -> None:
    port = free_port()
    terminal = tutor(*SERVE, "--port", str(port), "--watch")
    terminal.until(lambda: f"127.0.0.1:{port}" in terminal.text and "MEASURED" in terminal.text)
    body = {"prompt": "One, two,", "max_tokens": 900, "ignore_eos": True, "stream": True}
    url = f"http://127.0.0.1:{port}"
    with (
        httpx2.Client(base_url=url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json=body) as streamed,
    ):
        lines = streamed.iter_lines()
        next(lines)
        terminal.until(lambda: re.search(r"\bA decode", terminal.text))  # the slot of this very client
        assert "f live" in terminal.text and "q quit" in terminal.text  # the keys that a server has
        first = number_after("step", terminal.text)
        terminal.until(lambda: number_after("step", terminal.text) > first + 5)
        terminal.type("q")
        rest = [line for line in lines if line]
    assert "shutting down" in rest[-1]
    assert terminal.ended() == 0 and terminal.settings == terminal.before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_serve_watch_has_the_keys_of_a_server(tutor: Open) -> None:
    terminal = tutor(*SERVE, "--port", "0", "--watch")
    terminal.until(lambda: re.search(r"SERVE 127\.0\.0\.1:\d+ .*MEASURED", terminal.text))
    url = "http://" + re.findall(r"SERVE (\S+)", terminal.text)[0]
    terminal.until(lambda: "options: " in terminal.text)
    assert "k: all" in terminal.text and "…" not in terminal.text.split("options: ")[1].splitlines()[0]
    answer(url, 8)
    terminal.until(lambda: number_after("step", terminal.text) >= 8)
    terminal.type(" ,")
    terminal.until(lambda: "looking back" in terminal.text)
    held = number_after("step", terminal.text)
    answer(url, 8)  # the server does not wait for the one who looks
    terminal.until(lambda: int(re.findall(r"step \d+/(\d+)", terminal.text)[0]) > held + 4)
    assert number_after("step", terminal.text) == held
    terminal.type("k")
    terminal.until(lambda: "Options of this server" in terminal.text)
    assert re.search(r"num_blocks +64", terminal.text)
    terminal.type("\x1b")
    terminal.until(lambda: "Options of this server" not in terminal.text)
    terminal.type("?")
    terminal.until(lambda: "stop the server and quit" in terminal.text)
    assert "run again" not in terminal.text  # a key of labs
    terminal.type("q")
    terminal.until(lambda: "stop the server and quit" not in terminal.text)
    terminal.type("f")
    terminal.until(lambda: "looking back" not in terminal.text)
    quits(terminal, "q")


def test_serve_watch_says_that_its_port_is_taken(tutor: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        terminal = tutor(*SERVE, "--port", str(taken.getsockname()[1]), "--watch")
        terminal.until(lambda: "Cannot listen on 127.0.0.1" in terminal.text)
        terminal.until(lambda: "not serving" in terminal.text)
        assert "died" not in terminal.text
        terminal.type("q")
        assert terminal.ended() == 3 and "Cannot listen" in terminal.text


def test_nothing_is_written_while_nothing_changes(tutor: Open, stage: Any) -> None:
    """Over a slow line: once the curves are full, a quiet server's picture costs no byte."""
    stage.play("vllm_1.txt")
    terminal = tutor("attach", stage.url, "--interval", "0.1", "--window", "1", columns=60)

    def polled(times: int) -> Callable[[], bool]:
        return lambda: stage.asked.count("/metrics") >= times

    terminal.until(polled(40))  # a curve of 60 columns has 34 points
    before = len(terminal.raw)
    terminal.until(polled(52))
    assert len(terminal.raw) - before < 100
    stage.play("vllm_2.txt")
    terminal.until(lambda: number_after("running", terminal.text) == 11)
    quits(terminal, "q")


def test_attach_prints_lines_where_no_picture_can_be(tutor: Open, stage: Any) -> None:
    stage.play("vllm_1.txt")
    terminal = tutor("attach", stage.url, "--interval", "0.1", term="dumb")
    terminal.until(lambda: terminal.raw.count(b"requests: 8 running") >= 2)  # the first has scrolled away
    assert b"\x1b" not in terminal.raw
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 0
    command = [*TUTOR, "attach", stage.url, "--interval", "0.1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("vLLM")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_attach_follows_tutor_serve_over_a_restart(tutor: Open) -> None:
    """Seen by the start of the process: a server that has answered nothing has no counter that falls."""
    port = free_port()
    with serving(port) as url:
        terminal = tutor("attach", url, "--interval", "0.2")
        terminal.until(lambda: "ATTACH  tutor serve" in terminal.text and "MEASURED" in terminal.text)
        terminal.until(lambda: "TTFT" in terminal.text and "KV cache" in terminal.text)
    terminal.until(lambda: "figures are" in terminal.text)  # the server is gone, its last figures stay
    with serving(port) as url:
        terminal.until(lambda: "restarted once" in terminal.text)
        answer(url, 12)
        terminal.until(lambda: re.search(r"TTFT +[\d.]+ m?s ", terminal.text))
        quits(terminal, "q")


def test_attach_recognises_llama_server(tutor: Open, llama_server: str) -> None:
    terminal = tutor("attach", llama_server, "--interval", "0.2")
    terminal.until(lambda: "ATTACH  llama-server" in terminal.text and "SLOTS" in terminal.text)
    terminal.until(lambda: number_after("running", terminal.text) == 0)
    answer(llama_server, 12)
    terminal.until(lambda: re.search(r"decode .*\d ms\s+12 ", terminal.text))
    assert urlsplit(llama_server).netloc in terminal.text
    quits(terminal, "q")
