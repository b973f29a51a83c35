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

    def start(*arguments: str) -> Terminal:
        environment = {**os.environ, "TERM": "xterm-256color", "TUTOR_DATA": str(tmp_path / "data")}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "TUTOR_API_KEY"):
            environment.pop(name, None)
        terminal = Terminal([*TUTOR, *arguments], environment, 80, 24)
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
        first = number_after("step", terminal.text)
        terminal.until(lambda: number_after("step", terminal.text) > first + 5)
        terminal.type("q")
        rest = [line for line in lines if line]
    assert "shutting down" in rest[-1]
    assert terminal.ended() == 0 and terminal.settings == terminal.before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_attach_follows_tutor_serve_over_a_restart(tutor: Open) -> None:
    port = free_port()
    with serving(port) as url:
        terminal = tutor("attach", url, "--interval", "0.2")
        terminal.until(lambda: "ATTACH  tutor serve" in terminal.text and "MEASURED" in terminal.text)
        terminal.until(lambda: "TTFT" in terminal.text)
        answer(url, 12)
        terminal.until(lambda: re.search(r"TTFT\s.*\d", terminal.text))
        terminal.until(lambda: "KV cache" in terminal.text)
    terminal.until(lambda: "figures are" in terminal.text)  # the server is gone, its last figures stay
    with serving(port) as url:
        answer(url, 4)
        terminal.until(lambda: "restarted once" in terminal.text)
        quits(terminal, "q")


def test_attach_recognises_llama_server(tutor: Open, llama_server: str) -> None:
    terminal = tutor("attach", llama_server, "--interval", "0.2")
    terminal.until(lambda: "ATTACH  llama-server" in terminal.text and "SLOTS" in terminal.text)
    terminal.until(lambda: number_after("running", terminal.text) == 0)
    answer(llama_server, 12)
    terminal.until(lambda: re.search(r"decode .*\d ms\s+12 ", terminal.text))
    assert urlsplit(llama_server).netloc in terminal.text
    quits(terminal, "q")
