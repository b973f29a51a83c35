"""Submissions that misbehave: each ends in the right verdict in time, and the next check works."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tutor.grading.client import JudgeClient
from tutor.grading.verdict import Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXERCISES = Path(__file__).parent / "exercises"
SOLUTION = EXERCISES / "sum" / "solution.py"
CALL_SECONDS = 0.5


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
    Hostile("endless loop", "timeout", "did not answer within 0.5 s (call 1 of total)", "while True: pass"),
    Hostile("endless import", "timeout", "does not finish its import within 0.5 s", top="while True: pass"),
    Hostile("sleeps", "timeout", "did not answer within 0.5 s", "time.sleep(3600)"),
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
        "closes files, returns", "error", "during call 1", "os.closerange(0, 4096)\nreturn sum(numbers)"
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
        "did not answer within 0.5 s",
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
    Hostile("replaces tools", "error", "call 1 of total", "os.write = os.read = None\nos._exit(7)"),
    Hostile("too large an answer", "fail", "70 MiB of data; 64 is the limit", "return bytes(70 * 2**20)"),
    Hostile("fills the disk", "fail", "OSError", "open('big', 'wb').write(bytes(10**8))\nreturn 0"),
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
async def judge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[JudgeClient]:
    """A judge whose exercise `sum` has one check, so that each case costs one broken guest."""
    folder = tmp_path_factory.mktemp("exercises")
    for name in ("sum", "calls"):
        shutil.copytree(EXERCISES / name, folder / name)
    check = folder / "sum" / "check.py"
    check.write_text(check.read_text().partition('@check("empty list"')[0])
    client = JudgeClient(exercises=folder, warm=False, namespaces=request.param == "namespaces")
    yield client
    await client.close()


async def grade(judge: JudgeClient, path: Path) -> Verdict:
    return await judge.verdict("sum", path, call_seconds=CALL_SECONDS)


@pytest.fixture
def nothing_left(
    judge: JudgeClient,
    descendants: Callable[[int], set[int]],
    wait_until: Callable[[Callable[[], bool]], bool],
) -> Callable[[], bool]:
    """Whether only the guest in reserve (two processes) is left under the judge, at the latest in a while."""
    return lambda: wait_until(lambda: len(descendants(judge.pid or 0)) == 2)


# without namespaces: the cases that are about processes
PLAIN = {"os._exit", "endless loop", "sleeps", "ignores signals", "segfault", "answers twice"}
PLAIN |= {"kills its parent", "kills its group", "forged answer", "closes all files", "memory bomb"}
RUNS = [("namespaces", case) for case in CASES]
RUNS += [("plain", case) for case in CASES if case.name in PLAIN]


@pytest.mark.parametrize(
    ("judge", "case"), RUNS, indirect=["judge"], ids=[f"{mode}-{case.name}" for mode, case in RUNS]
)
async def test_misbehaviour_never_passes(
    judge: JudgeClient, case: Hostile, tmp_path: Path, nothing_left: Callable[[], bool]
) -> None:
    await judge.start()
    before, started = judge.pid, time.monotonic()
    verdict = await grade(judge, submission(case, tmp_path))
    assert time.monotonic() - started < 10.0, "the limit of a call and a fresh guest"
    assert verdict.status in case.statuses.split(), verdict
    messages = [verdict.message, *(result.message for result in verdict.checks)]
    assert any(case.phrase in message for message in messages), messages
    assert judge.pid == before, "the judge itself survives"
    assert (await grade(judge, SOLUTION)).passed
    assert nothing_left()


LEFTOVERS = {
    "thread": "threading.Thread(target=lambda: time.sleep(3600), daemon=True).start()",
    "busy thread that prints": "threading.Thread(target=lambda: [print('x') for _ in iter(int, 1)]).start()",
    "child": "if os.fork() == 0: time.sleep(3600)",
    "detached child": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(3600)
    os._exit(0)
""",
    "stubborn child": """
if os.fork() == 0:
    for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)
    os.setpgid(0, 0)
    time.sleep(3600)
""",
}


@pytest.mark.parametrize("name", LEFTOVERS)
async def test_a_right_answer_leaves_nothing_running(
    judge: JudgeClient, name: str, tmp_path: Path, nothing_left: Callable[[], bool]
) -> None:
    case = Hostile(name, "pass", "", f"{LEFTOVERS[name]}\nreturn sum(numbers)")
    verdict = await grade(judge, submission(case, tmp_path))
    assert verdict.passed, verdict
    assert nothing_left()
    assert (await grade(judge, SOLUTION)).passed


async def test_100_mb_of_output_is_drained_and_capped(judge: JudgeClient, tmp_path: Path) -> None:
    body = "for _ in range(100): sys.stdout.write('x' * (10**5 - 1) + '\\n')\nreturn sum(numbers)"
    path = submission(Hostile("loud", "pass", "", body), tmp_path)  # ten calls of 10 MB
    before = _peak_kb(judge)
    verdict = await judge.verdict("sum", path, call_seconds=20.0)
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


async def test_limits_and_environment_of_the_guest(judge: JudgeClient, tmp_path: Path) -> None:
    body = (
        "import json, resource as r\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpgid(0),\n"
        "    [r.getrlimit(n)[1] for n in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE)]]))\n"
        "return sum(numbers)"
    )
    verdict = await grade(judge, submission(Hostile("looks around", "pass", "", body), tmp_path))
    assert verdict.passed
    environment, folder, own_session, limits = json.loads(verdict.output.splitlines()[0])
    assert "TUTOR_CACHE" not in environment and environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == folder and not os.path.exists(folder)
    assert own_session
    assert limits == [768 * 2**20, 11, 16 * 2**20, 64]
