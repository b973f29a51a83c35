"""How long `tutor` takes to the first full paint of the map, beside a bare Textual app.

Both run in a real pseudo-terminal of 120×40, alternating, and are timed from the fork until the
expected text stands on the emulated screen (pyte): for the map the key line, which is painted last,
and a card, for the bare app its word. Run: python bench/startup.py [--runs N]
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 120, 40
LIMIT = 30.0
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("hello from a bare app")
Bare().run()
"""
MAP_WORDS = ("INFERENCE TUTOR", "Tokens and", "STAGE 2", "UNLOCKS", "q quit")
MODULES = """
import sys
from tutor.curriculum.loader import load_course
from tutor.journal.store import Journal
from tutor.ui.app import TutorApp
from tutor.ui.services import Services
import asyncio
async def main():
    app = TutorApp(Services(load_course(), Journal()))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
asyncio.run(main())
watched = ("llama_cpp", "numpy", "networkx", "jinja2", "tree_sitter", "markdown_it", "gguf")
print(" ".join(name for name in watched if name in sys.modules))
"""


def first_paint(command: list[str], words: tuple[str, ...], env: dict[str, str]) -> float:
    """Seconds until all words are on the screen; the program is ended afterwards."""
    started = time.perf_counter()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvpe(command[0], command, env)
    ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    try:
        while time.perf_counter() - started < LIMIT:
            if not select.select([fd], [], [], 0.01)[0]:
                continue
            # Textual asks for synchronised output with a private mode that pyte does not know
            stream.feed(os.read(fd, 65536).replace(b"\x1b[?2026$p", b""))
            text = "\n".join(screen.display)
            if all(word in text for word in words):
                return time.perf_counter() - started
        raise SystemExit(
            f"{command} did not paint {words} within {LIMIT:.0f} s:\n" + "\n".join(screen.display)
        )
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def loaded_modules(env: dict[str, str]) -> str:
    run = subprocess.run(
        [sys.executable, "-c", MODULES], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=10, help="runs of each (default 10)")
    parser.add_argument("--limit", type=float, default=1.6, help="exit 1 above this ratio of the medians")
    runs, limit = (args := parser.parse_args()).runs, args.limit
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TERM": "xterm-256color", "TUTOR_DATA": folder, "TUTOR_WORKSPACE": folder}
        env |= {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        tutor = [sys.executable, "-m", "tutor"]
        bare = [sys.executable, "-c", BARE]
        for command, words in ((bare, ("hello",)), (tutor, MAP_WORDS)):
            first_paint(command, words, env)  # fills the file cache and writes .pyc files
        times: dict[str, list[float]] = {"bare Textual app": [], "tutor (map)": []}
        for _ in range(runs):
            times["bare Textual app"].append(first_paint(bare, ("hello from a bare app",), env))
            times["tutor (map)"].append(first_paint(tutor, MAP_WORDS, env))
        modules = loaded_modules(env)
    medians = [statistics.median(values) for values in times.values()]
    print(
        f"{'start to first full paint':28}{'median':>10}{'min':>10}{'max':>10}"
        f"   ({runs} runs each, 120×40 pty)"
    )
    for (name, values), median in zip(times.items(), medians, strict=True):
        print(f"{name:28}{median * 1e3:7.0f} ms{min(values) * 1e3:7.0f} ms{max(values) * 1e3:7.0f} ms")
    ratio = medians[1] / medians[0]
    print(f"{'ratio of the medians':28}{ratio:8.2f}×   (limit {limit}×)")
    print(f"heavy modules loaded by then: {modules or 'none'}")
    print(f"llama_cpp in the UI process: {'YES' if 'llama_cpp' in modules.split() else 'no'}")
    return 1 if ratio > limit or "llama_cpp" in modules.split() else 0


if __name__ == "__main__":
    sys.exit(main())
