"""Public clients, unchanged, against one `tutor serve`: none may have a failed request.

Sixteen users at once, each with pauses of 5.5 s between its requests: connections that are kept idle for
longer than many servers bear. Each client counts its own failures; the kernel's figures (`ss`) say how many
connections the server had, and how often one was used again after more than 5 s. Clients that are not
installed are named.

Run: python bench/clients.py [-n 500] [--npm DIR] [--aiperf PATH] [--guidellm PATH] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gguf_tokenizer
from connections import Connections

from tutor.llama.model import find_model

USERS = SLOTS = 16
PAUSE = 5.5  # seconds
IDLE = 5.0  # seconds that a connection must have been unused to count
TOKENS, PROMPT_TOKENS = 8, 16
TURNS = 8  # requests of a conversation, for the clients that pause between those
LIMIT = 1200.0  # seconds for one client
HERE = Path(__file__).parent
OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
INSTALL = {
    "openai-python": "pip install openai",
    "openai-npm": "npm install --prefix DIR openai, then --npm DIR",
    "aiperf": "pip install aiperf in a virtual environment of its own, then --aiperf PATH",
    "guidellm": "pip install torch (a CPU build) guidellm in one of its own, then --guidellm PATH",
}


@dataclass(frozen=True)
class Told:
    """What a client says about itself."""

    version: str
    num_ok: int
    errors: Sequence[str]


@dataclass(frozen=True)
class Setup:
    url: str
    count: int
    folder: Path  # for what clients write
    npm: Path | None
    aiperf: Path | None
    guidellm: Path | None

    @property
    def num_conversations(self) -> int:
        return -(-self.count // TURNS)


@contextmanager
def serving() -> Iterator[str]:
    command = [sys.executable, "-m", "tutor", "serve", "--port", "0", "--max-num-seqs", str(SLOTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if len(words) < 3:
            raise SystemExit("tutor serve did not start.")
        try:
            yield words[2]
        finally:
            process.send_signal(signal.SIGTERM)


def counted(url: str) -> dict[str, float]:
    """Requests that ended, as the server counts them, by reason."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    name = "vllm:request_success_total{"
    return {
        line.split('finished_reason="')[1].split('"')[0]: float(line.split()[-1])
        for line in lines if line.startswith(name)
    }  # fmt: skip


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Its standard output. Raises SystemExit with its last words when it fails."""
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=folder,
        env={**OFFLINE, "HF_HOME": str(folder)},
    )
    if ran.returncode:
        words = "\n".join((ran.stdout + ran.stderr).splitlines()[-15:])
        raise SystemExit(f"{Path(command[0]).name} ended with {ran.returncode}:\n{words}")
    return ran.stdout


def openai_python(setup: Setup) -> Told:
    told = json.loads(run(own_loop([sys.executable, HERE / "clients_openai.py"], setup), setup.folder))
    version = run([sys.executable, "-c", "import openai; print(openai.__version__)"], setup.folder).strip()
    return Told(version, told["ok"], told["errors"])


def openai_npm(setup: Setup) -> Told:
    assert setup.npm is not None
    folder = setup.npm.resolve()
    told = json.loads(run(own_loop(["node", HERE / "clients_openai.mjs", folder], setup), setup.folder))
    package = json.loads((folder / "node_modules/openai/package.json").read_text("utf-8"))
    return Told(package["version"], told["ok"], told["errors"])


def own_loop(command: Sequence[str | Path], setup: Setup) -> list[str | Path]:
    return [*command, setup.url, str(setup.count), str(USERS), str(PAUSE), str(TOKENS)]


def tokenizer(setup: Setup, python: Path) -> Path:
    """Made from the GGUF; raises SystemExit when its ids are not llama.cpp's."""
    path = find_model()
    folder = setup.folder / "tokenizer"
    gguf_tokenizer.write(path, folder)
    texts = gguf_tokenizer.sample_texts()
    if wrong := gguf_tokenizer.different(path, folder, python, texts):
        raise SystemExit(f"The tokenizer's ids differ from llama.cpp's: {wrong[0][:60]!r}")
    print(f"tokenizer from the GGUF: {len(texts)} of {len(texts)} texts have llama.cpp's ids", flush=True)
    return folder


def cached(made: Path, home: Path) -> str:
    """Lay a tokenizer into a Hugging Face cache: offline, aiperf looks nowhere else. Its name there."""
    revision = "0" * 40
    place = home / "hub" / "models--local--gguf"
    shutil.copytree(made, place / "snapshots" / revision)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(revision, "ascii")
    return "local/gguf"


def aiperf(setup: Setup) -> Told:
    """Conversations of `TURNS` turns, with the pause before each turn but the first."""
    assert setup.aiperf is not None
    artifacts = setup.folder / "aiperf"
    made = tokenizer(setup, beside(setup.aiperf))
    run(
        [
            setup.aiperf, "profile", "--model", find_model().stem, "--url", setup.url,
            "--endpoint-type", "chat", "--streaming", "--tokenizer", cached(made, setup.folder),
            "--concurrency", str(USERS), "--conversation-num", str(setup.num_conversations),
            "--conversation-turn-mean", str(TURNS), "--conversation-turn-stddev", "0",
            "--conversation-turn-delay-mean", str(1e3 * PAUSE), "--conversation-turn-delay-stddev", "0",
            "--prompt-input-tokens-mean", str(PROMPT_TOKENS), "--prompt-input-tokens-stddev", "0",
            "--prompt-output-tokens-mean", str(TOKENS), "--random-seed", "1", "--ui-type", "none",
            "--no-gpu-telemetry", "--no-server-metrics", "--output-artifact-dir", artifacts,
        ],
        setup.folder,
    )  # fmt: skip
    told = json.loads(next(artifacts.rglob("profile_export_aiperf.json")).read_text("utf-8"))
    failed = (told.get("error_request_count") or {"avg": 0})["avg"]
    errors = [str(error) for error in told.get("error_summary") or []]
    return Told(
        version_of(setup.aiperf, "aiperf"), int(told["request_count"]["avg"]), errors or ["?"] * int(failed)
    )


def guidellm(setup: Setup) -> Told:
    """The same conversations. Its HTTP client closes connections that idle for 5 s."""
    assert setup.guidellm is not None
    report = setup.folder / "guidellm.json"
    made = tokenizer(setup, beside(setup.guidellm))
    lengths = f"prompt_tokens={PROMPT_TOKENS},output_tokens={TOKENS},turns={TURNS},delay={PAUSE}"
    run(
        [
            setup.guidellm, "run", "--backend", f"kind=openai_http,target={setup.url}",
            "--profile", f"kind=concurrent,streams={USERS}", "--tokenizer", f"kind=hf_auto,model={made}",
            "--data", f"kind=synthetic_text,{lengths}",
            "--constraint", f"kind=max_requests,count={setup.count}",
            "--output", f"kind=json,path={report}", "--disable-console-interactive",
        ],
        setup.folder,
    )  # fmt: skip
    (told,) = json.loads(report.read_text("utf-8"))["benchmarks"]
    requests = told["requests"]
    errors = [str(request.get("error") or request)[:200] for request in requests["errored"]]
    errors += ["incomplete"] * len(requests["incomplete"])
    return Told(version_of(setup.guidellm, "guidellm"), len(requests["successful"]), errors)


def beside(program: Path) -> Path:
    """The Python of the environment that a program was installed in."""
    return program.absolute().parent / "python"


def version_of(program: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return run([beside(program), "-c", code], program.absolute().parent).strip()


CLIENTS = {"openai-python": openai_python, "openai-npm": openai_npm, "aiperf": aiperf, "guidellm": guidellm}


def measure(name: str, setup: Setup) -> bool:
    """Run one client and print its row; True when nothing failed."""
    before, started = counted(setup.url), time.perf_counter()
    with Connections(int(setup.url.rpartition(":")[2]), IDLE) as connections:
        told = CLIENTS[name](setup)
    ended = {key: int(value - before.get(key, 0)) for key, value in counted(setup.url).items()}
    print(
        f"| {name} {told.version} | {told.num_ok} | {len(told.errors)} | {ended} | {connections.num_seen} | "
        f"{connections.num_resumed} | {time.perf_counter() - started:.0f} s |",
        flush=True,
    )
    for error in told.errors[:5]:
        print("   ", error)
    return not told.errors and told.num_ok >= setup.count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=500, help="requests of each client, at least (500)")
    parser.add_argument("--npm", type=Path, help="folder whose node_modules has openai")
    parser.add_argument("--aiperf", type=Path, help="the program")
    parser.add_argument("--guidellm", type=Path, help="the program")
    parser.add_argument("--only", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    given = parser.parse_args()
    if not Connections.available():
        raise SystemExit("This needs `ss` (Debian's package iproute2).")
    there = {
        "openai-python": True,
        "openai-npm": given.npm,
        "aiperf": given.aiperf,
        "guidellm": given.guidellm,
    }
    print("| client | ok | failed | the server's count | connections | used again after > 5 s | time |")
    print("|---|---|---|---|---|---|---|", flush=True)
    good = True
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        setup = Setup(url, given.n, Path(folder), given.npm, given.aiperf, given.guidellm)
        for name in given.only:
            if there[name]:
                good &= measure(name, setup)
            else:
                print(f"| {name} | not run: {INSTALL[name]} | | | | | |")
    print("passed" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
