"""llama-server in a child process, spoken to over HTTP. It comes with the PyPI package xllamacpp.

`LlamaServer(...)` starts it and stops it; the child is this file run as a script. Times are the server's own
where it reports them (`timings`), so that our client's share does not count against it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

INSTALL = "Type: pip install xllamacpp (llama-server as a library; used by this comparison only)."
START_LIMIT = 60.0


def available() -> bool:
    return importlib.util.find_spec("xllamacpp") is not None


def version() -> str:
    import importlib.metadata

    return importlib.metadata.version("xllamacpp")


class LlamaServer:
    """A server with `slots` slots of `cells` KV cells each. Use it in a `with` block."""

    def __init__(self, model: Path, slots: int, cells: int, threads: int) -> None:
        self.slots = slots
        command = [sys.executable, __file__, str(model), str(slots), str(cells), str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._url = self._process.stdout.readline().strip()
        if not self._url.startswith("http"):
            self.close()
            raise SystemExit(f"llama-server did not start (exit code {self._process.returncode}).")
        self._pool = ThreadPoolExecutor(slots)

    @property
    def url(self) -> str:
        return self._url

    def complete(self, prompt: Sequence[int], count: int, reuse: bool = False) -> dict[str, Any]:
        """Greedy completion of token ids. The answer gets `seconds`, the client's wall time."""
        body = {
            "prompt": list(prompt),
            "n_predict": count,
            "temperature": 0,
            "samplers": ["temperature"],
            "ignore_eos": True,
            "cache_prompt": reuse,
        }
        request = urllib.request.Request(
            f"{self._url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        started = time.perf_counter()
        with urllib.request.urlopen(request) as response:
            answer: dict[str, Any] = json.load(response)
        answer["seconds"] = time.perf_counter() - started
        return answer

    def complete_all(
        self, prompts: Sequence[Sequence[int]], count: int, reuse: bool = False
    ) -> list[dict[str, Any]]:
        """All prompts at once, one thread each."""
        return list(self._pool.map(lambda prompt: self.complete(prompt, count, reuse), prompts))

    def decode_speed(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        """Tokens a second of all together, from the server's own times between first and last token."""
        return sum(answer["timings"]["predicted_per_second"] for answer in self.complete_all(prompts, count))

    def close(self) -> None:
        """End the child: it leaves when its standard input closes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> LlamaServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self.close()


def serve(model: str, slots: int, cells: int, threads: int) -> None:
    """Start the server, print its address, leave when standard input closes."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel = slots
    params.n_ctx = slots * cells
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.port = 0
    params.endpoint_metrics = True
    params.cache_ram_mib = 0  # no copies of finished prompts in host memory: ours keeps none either
    params.fit_params = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:5]))
