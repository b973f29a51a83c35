"""Submissions that misbehave: each ends in the right verdict in time, and the next check works."""

from __future__ import annotations

import os
import socket
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from conftest import EXERCISES, descendants, wait_until

from tutor.grading.client import JudgeClient
from tutor.grading.process import GuestProcess
from tutor.grading.verdict import Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOLUTION = EXERCISES / "sum" / "solution.py"
CALL_SECONDS = 1.0


class Hostile(NamedTuple):
    """`body` runs inside total(numbers), `top` at import."""

    name: str
    statuses: str
    phrase: str
    body: str = "return sum(numbers)"
    top: str = ""


CASES = [
    Hostile("sys.exit", "error", "ended the process (exit code 0) during call 1 of total", "sys.exit(0)"),
    Hostile("os._exit", "error", "ended the process (exit code 0) during call 1 of total", "os._exit(0)"),
    Hostile("exit at import", "error", "exit code 0) while total.py was imported", top="sys.exit(0)"),
    Hostile("_exit at import", "error", "exit code 3) while total.py was imported", top="os._exit(3)"),
    Hostile("endless loop", "timeout", "did not answer within 1 s (call 1 of total)", "while True: pass"),
    Hostile("endless import", "timeout", "does not finish its import within 1 s", top="while True: pass"),
    Hostile("sleeps", "timeout", "did not answer within 1 s", "time.sleep(3600)"),
    Hostile("memory bomb", "error", "ran out of memory during call 1", "return len(bytearray(10**11))"),
    Hostile(
        "memory bomb in steps",
        "error timeout",
        "call 1 of total",
        "held = []\nwhile True: held.append(bytearray(10**6))",
    ),
    Hostile("loud and wrong", "fail", "total([", "print('x' * 10**7)\nreturn 0"),
    Hostile("equal to everything", "fail", "returned a value of type Yes", "return Yes()"),
    Hostile("an int equal to everything", "fail", "total([", "return YesInt(0)"),
    Hostile("closes all files", "error", "closed the pipe", "os.closerange(0, 4096)\ntime.sleep(3600)"),
    Hostile(
        "closes all files and returns", "error", "during call 1", "os.closerange(0, 4096)\nreturn sum(numbers)"
    ),
    Hostile(
        "writes to every pipe",
        "error",
        "grader's pipe",
        "for fd in range(3, 64): write(fd, b'pass' * 1000)\nreturn sum(numbers)",
    ),
    Hostile(
        "forged answer",
        "error",
        "something other than its answer",
        "body = msgspec.msgpack.encode([11, b'0123456789abcdef', sum(numbers)])\n"
        "for fd in range(3, 64): write(fd, len(body).to_bytes(4, 'big') + body)\n"
        "return sum(numbers)",
    ),
    Hostile(
        "ignores signals",
        "timeout",
        "did not answer within 1 s",
        "for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
    ),
    Hostile("recursion", "fail", "RecursionError", "return total(numbers)"),
    Hostile(
        "recursion without limit",
        "error timeout",
        "call 1 of total",
        "sys.setrecursionlimit(10**9)\nreturn functools.reduce(lambda a, b: total(numbers), [1, 2])",
    ),
    Hostile("segfault", "error", "SIGSEGV", "ctypes.string_at(0)"),
    Hostile("kills its parent", "error", "call 1 of total", "os.kill(os.getppid(), 9)\ntime.sleep(3600)"),
    Hostile("kills its group", "error", "call 1 of total", "os.killpg(0, 9)\ntime.sleep(3600)"),
    Hostile("answers twice", "error", "something other than its answer", "os.fork()\nreturn sum(numbers)"),
    Hostile("waits for input", "fail", "EOFError", "return input('number? ')"),
    Hostile("raises Ctrl-C", "error", "ended the process", "raise KeyboardInterrupt"),
    Hostile("broken exception", "fail", "Rude", "raise Rude"),
    Hostile("cyclic answer", "fail", "contains itself", "held = []\nheld.append(held)\nreturn held"),
    Hostile("generator", "fail", "a generator (wrap it in list(...))", "return (n for n in numbers)"),
    Hostile("replaces the runner's tools", "error", "call 1 of total", "os.write = os.read = None\nos._exit(7)"),
    Hostile("too large an answer", "fail", "(limit 64)", "return bytes(70 * 2**20)"),
    Hostile("fills the disk", "fail", "OSError", "open('big', 'wb').write(bytes(10**8))\nreturn sum(numbers)"),
]  # fmt: skip

PRELUDE = """
import ctypes, functools, os, signal, sys, threading, time
import msgspec

def write(fd, data):
    try:
        os.write(fd, data)
    except OSError:
        pass

class Yes:
    def __eq__(self, other): return True

class YesInt(int):
    def __eq__(self, other): return True
    def __add__(self, other): return self

class Rude(Exception):
    def __str__(self): raise RuntimeError
"""


def submission(case: Hostile, folder: Path) -> Path:
    path = folder / "total.py"
    body = textwrap.indent(case.body, "    ")
    path.write_text(f"{PRELUDE}\n{case.top}\n\ndef total(numbers):\n{body}\n")
    return path


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["namespaces", "plain"])
async def judge(request: pytest.FixtureRequest) -> AsyncIterator[JudgeClient]:
    client = JudgeClient(exercises=EXERCISES, warm=False, namespaces=request.param == "namespaces")
    yield client
    await client.close()


async def grade(judge: JudgeClient, path: Path) -> Verdict:
    return await judge.verdict("sum", path, call_seconds=CALL_SECONDS)


def only_the_spare_runs(judge: JudgeClient) -> bool:
    """The judge's one guest in reserve is two processes."""
    assert judge.pid is not None
    return len(descendants(judge.pid)) == 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
async def test_misbehaviour_never_passes(judge: JudgeClient, case: Hostile, tmp_path: Path) -> None:
    await judge.start()
    before, started = judge.pid, time.monotonic()
    verdict = await grade(judge, submission(case, tmp_path))
    assert time.monotonic() - started < 8 * CALL_SECONDS
    assert verdict.status in case.statuses.split(), verdict
    messages = [verdict.message, *(result.message for result in verdict.checks)]
    assert any(case.phrase in message for message in messages), messages
    assert judge.pid == before, "the judge itself survives"
    assert (await grade(judge, SOLUTION)).passed
    assert wait_until(lambda: only_the_spare_runs(judge))


LEFTOVERS = {
    "thread": "threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()",
    "busy thread that prints": "threading.Thread(target=lambda: [print('x') for _ in iter(int, 1)]).start()",
    "child": "if os.fork() == 0: time.sleep(3600)",
    "detached child": "if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(3600)\n        os._exit(0)",
    "stubborn child": "if os.fork() == 0:\n        signal.signal(15, signal.SIG_IGN)\n        os.setpgid(0, 0)\n        time.sleep(3600)",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFTOVERS)
async def test_a_right_answer_leaves_nothing_running(judge: JudgeClient, name: str, tmp_path: Path) -> None:
    case = Hostile(name, "pass", "", f"{LEFTOVERS[name]}\nreturn sum(numbers)")
    text = submission(case, tmp_path)
    text.write_text(text.read_text().replace("\n        ", "\n            "))
    verdict = await grade(judge, text)
    assert verdict.passed, verdict
    assert wait_until(lambda: only_the_spare_runs(judge))
    assert (await grade(judge, SOLUTION)).passed


async def test_100_mb_of_output_is_drained_and_capped(judge: JudgeClient, tmp_path: Path) -> None:
    body = "for _ in range(100): sys.stdout.write('x' * (10**5 - 1) + '\\n')\nreturn sum(numbers)"
    path = submission(Hostile("loud", "pass", "", body), tmp_path)  # ten calls of 10 MB
    before = _peak_kb(judge)
    verdict = await grade(judge, path)
    assert verdict.passed, verdict
    assert len(verdict.output) < 70_000
    assert verdict.output.endswith("more bytes were printed and not kept.")
    assert _peak_kb(judge) - before < 30_000


def _peak_kb(judge: JudgeClient) -> int:
    status = Path(f"/proc/{judge.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_a_thread_cannot_call_back_after_its_call(judge: JudgeClient, tmp_path: Path) -> None:
    text = (EXERCISES / "calls" / "solution.py").read_text()
    late = (
        "    import threading\n"
        "    def late():\n"
        "        while True: step(1)\n"
        "    threading.Thread(target=late, daemon=True).start()\n"
    )
    path = tmp_path / "calls.py"
    path.write_text(text.replace("    results, value = [], 1\n", f"{late}    results, value = [], 1\n"))
    verdict = await judge.verdict("calls", path)
    assert verdict.checks[0].status in ("error", "fail")
    assert not verdict.passed
    assert (await grade(judge, SOLUTION)).passed


async def test_limits_and_environment_of_the_guest(
    judge: JudgeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "import json, resource as r\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpgid(0),\n"
        "    [r.getrlimit(n)[1] for n in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE)]]))\n"
        "return sum(numbers)"
    )
    verdict = await grade(judge, submission(Hostile("looks around", "pass", "", body), tmp_path))
    assert verdict.passed
    import json

    environment, folder, own_session, limits = json.loads(verdict.output.splitlines()[0])
    assert "TUTOR_CACHE" not in environment and environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == folder and not os.path.exists(folder)
    assert own_session
    assert limits == [768 * 2**20, 11, 16 * 2**20, 64]


def test_namespaces_cut_the_network_off(tmp_path: Path) -> None:
    guest = GuestProcess(namespaces=True, scratch=tmp_path)
    try:
        guest.wait_ready()
        granted = not guest.notes
    finally:
        guest.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 0.5)\nreturn sum(numbers)"
        path = submission(Hostile("dials", "", "", body), tmp_path)
        from tutor.grading.client import run_check

        verdict = run_check("sum", path, exercises=EXERCISES)
    # where the kernel refuses the namespace, the guest says so and the connection works
    assert verdict.passed is not granted
    if granted:
        assert "Network is unreachable" in verdict.checks[0].message
    else:
        assert "stay reachable" in guest.notes[0]
