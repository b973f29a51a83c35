"""A server that answers with what a test puts on stage, and the real llama-server."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from scripted_openai import ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
SCRAPES = Path(__file__).parent / "scrapes"
CELLS = 1024


class Stage:
    """`pages` maps a path to (status, body); any other path is a 404. `asked` lists the paths that came."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        stage = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stage.asked.append(self.path)
                status, body = stage.pages.get(self.path, (404, b'{"error": {"message": "no such page"}}'))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def play(self, scrape: str, **pages: str) -> None:
        """Put a recorded scrape on `/metrics`, and files or texts on other paths."""
        self.pages["/metrics"] = (200, (SCRAPES / scrape).read_bytes())
        for path, text in pages.items():
            self.pages[f"/{path}"] = (200, text.encode())

    def close(self) -> None:
        """Closing twice is fine: a test may take the server away."""
        if not self._thread.is_alive():
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.fixture
def scrapes() -> Path:
    return SCRAPES


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """The address of a real llama-server with the tutor's model, 4 slots, /metrics on."""
    pytest.importorskip("xllamacpp")
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from llama_server import LlamaServer
    finally:
        sys.path.remove(str(ROOT / "bench"))
    from tutor.llama.model import find_model

    with LlamaServer(find_model(), 4, CELLS, 1) as server:
        yield server.url


@pytest.fixture
def complete() -> Callable[[str, str, int], int]:
    """Ask a server for an answer of `count` tokens; returns how many it says it generated."""

    def ask(url: str, prompt: str, count: int) -> int:
        body = {"model": "", "messages": [{"role": "user", "content": prompt}], "max_tokens": count,
                "temperature": 0, "ignore_eos": True}  # fmt: skip
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return int(json.load(response)["usage"]["completion_tokens"])

    return ask


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()
