"""Submissions that misbehave, as data: what each does and which verdict is right for it.

The lists of codejail and of contest graders were the model; deep recursion, a patched harness, reading of
solution files and ignored signals were added. `tests/grading/test_hostile*.py` run them.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

CALL_SECONDS = 0.5


class Hostile(NamedTuple):
    """`body` runs inside total(numbers), `top` at import. `plain`: also tried without namespaces."""

    name: str
    statuses: str
    phrase: str
    body: str = "return sum(numbers)"
    top: str = ""
    plain: bool = False


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


READER = """
FOLDER, REFERENCES, NEIGHBOUR = {folder!r}, {references!r}, {neighbour!r}
SOLUTION, CHECK = FOLDER + "/sum/solution.py", FOLDER + "/sum/check.py"

def answer_of(path, numbers):
    names = {{}}
    exec(open(path).read(), names)
    return names["total"](numbers)
"""


class Places(NamedTuple):
    """What a submission may try to read: the exercises, the stored references, another's workspace."""

    exercises: Path
    references: Path
    neighbour: Path


def submission(case: Hostile, folder: Path, places: Places | None = None) -> Path:
    """The case as a file of the exercise `sum`."""
    path = folder / "total.py"
    body, top = textwrap.indent(case.body, "    "), case.top
    if top == "{reader}":
        assert places is not None
        solved = str(places.neighbour / "total.py")
        top = READER.format(folder=str(places.exercises), references=str(places.references), neighbour=solved)
    path.write_text(f"{PRELUDE}\n{top}\n\ndef total(numbers):\n{body}\n")
    return path


LOOP = "while True: pass"
LATE = "did not answer within 0.5 s"
ENDS = "ended the process (exit code"
OTHER = "something other than its answer"

ENDINGS = (
    Hostile("sys.exit", "error", f"{ENDS} 0) during call 1 of total", "sys.exit(0)"),
    Hostile("os._exit", "error", f"{ENDS} 0) during call 1 of total", "os._exit(0)", plain=True),
    Hostile("exit at import", "error", "exit code 0) while total.py was imported", top="sys.exit(0)"),
    Hostile("_exit at import", "error", "exit code 3) while total.py was imported", top="os._exit(3)"),
    Hostile("raises Ctrl-C", "error", "ended the process", "raise KeyboardInterrupt"),
    Hostile("segfault", "error", "SIGSEGV", "ctypes.string_at(0)", plain=True),
    Hostile("aborts", "error", "was ended by signal SIG", "os.abort()"),
    Hostile(
        "kills its parent",
        "error",
        "call 1 of total",
        "os.kill(os.getppid(), 9)\ntime.sleep(3600)",
        plain=True,
    ),
    Hostile("kills its group", "error", "call 1 of total", "os.killpg(0, 9)\ntime.sleep(3600)", plain=True),
    Hostile("becomes another program", "error", "call 1 of total", "os.execv('/bin/true', ['true'])"),
    Hostile(
        "_exit in atexit", "pass", "", "atexit.register(os._exit, 7)\nreturn sum(numbers)", "import atexit"
    ),
)

LOOPS = (
    Hostile("endless loop", "timeout", f"{LATE} (call 1 of total)", LOOP, plain=True),
    Hostile("endless import", "timeout", "does not finish its import within 0.5 s", top=LOOP),
    Hostile(
        "endless __del__",
        "timeout",
        LATE,
        "held = Held()\nreturn sum(numbers)",
        "class Held:\n    def __del__(self):\n        while True: pass",
    ),
    Hostile("sleeps", "timeout", LATE, "time.sleep(3600)", plain=True),
    Hostile(
        "ignores signals",
        "timeout",
        LATE,
        f"for n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\n{LOOP}",
        plain=True,
    ),
    Hostile(
        "ignores SIGTERM at import",
        "timeout",
        "does not finish its import",
        top=f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{LOOP}",
    ),
    # the first process of a namespace cannot be stopped from inside: there the call returns None
    Hostile("stops itself", "timeout fail", "total", "os.kill(os.getpid(), signal.SIGSTOP)", plain=True),
    Hostile("stops its group", "timeout fail", "total", "os.killpg(0, signal.SIGSTOP)", plain=True),
    Hostile(
        "an alarm that is ignored",
        "timeout",
        LATE,
        f"signal.signal(14, signal.SIG_IGN)\nsignal.alarm(1)\n{LOOP}",
    ),
    Hostile("waits for itself", "timeout", LATE, "lock = threading.Lock()\nwith lock:\n    lock.acquire()"),
    Hostile("an endless regular expression", "timeout", LATE, "re.match('(a*)*b', 'a' * 64)", "import re"),
    Hostile(
        "a lazy clock",
        "timeout",
        LATE,
        f"time.time = time.monotonic = time.perf_counter = lambda: 0.0\n{LOOP}",
    ),
    Hostile("recursion", "fail", "RecursionError", "return total(numbers)"),
    Hostile(
        "recursion without limit",
        "error timeout",
        "call 1 of total",
        "sys.setrecursionlimit(10**9)\nreturn functools.reduce(lambda a, b: total(numbers), [1, 2])",
    ),
    Hostile(
        "recursion in a thread",
        "error timeout fail",
        "total",
        "threading.stack_size(2**20)\nsys.setrecursionlimit(10**6)\n"
        "held = threading.Thread(target=total, args=(numbers,))\nheld.start()\nheld.join()",
    ),
)

RESOURCES = (
    Hostile(
        "memory bomb", "error", "ran out of memory during call 1", "return len(bytearray(10**11))", plain=True
    ),
    Hostile(
        "memory bomb in steps",
        "error timeout",
        "call 1 of total",
        "held = []\nwhile True: held.append(bytearray(10**6))",
    ),
    Hostile("memory by list", "error timeout", "call 1 of total", "held = [0]\nwhile True: held += held"),
    Hostile(
        "memory by NumPy", "fail error", "call 1", "return float(np.ones(10**11).sum())", "import numpy as np"
    ),
    Hostile("memory by mmap", "fail error", "call 1", "return len(mmap.mmap(-1, 10**11))", "import mmap"),
    Hostile("memory by text", "error timeout", "call 1", "text = 'x'\nwhile True: text += text"),
    Hostile("loud and wrong", "fail", "total([", "print('x' * 10**7)\nreturn 0"),
    Hostile("loud on stderr", "timeout", LATE, "while True: sys.stderr.write('x' * 10**5)"),
    Hostile(
        "all open files",
        "fail",
        "Too many open files",
        "held = []\nwhile True: held.append(open('/dev/null'))",
        plain=True,
    ),
    Hostile("all open pipes", "fail", "Too many open files", "held = []\nwhile True: held.append(os.pipe())"),
    Hostile("fills a file", "fail", "OSError", "open('big', 'wb').write(bytes(10**8))\nreturn 0"),
    Hostile(
        "fills the disk with files",
        "fail timeout",
        "call 1 of total",
        "for n in range(10**6):\n    open(f'{n}', 'wb').write(bytes(10**7))",
    ),
    Hostile(
        "many small files",
        "fail timeout",
        "call 1 of total",
        "for n in range(10**6): open(f'{n}', 'w').close()",
        plain=True,
    ),
    Hostile(
        "folders in folders",
        "fail timeout",
        "call 1 of total",
        "while True:\n    os.mkdir('d')\n    os.chdir('d')",
        plain=True,
    ),
    Hostile(
        "reads /dev/random",
        "error timeout",
        "call 1 of total",
        "return len(open('/dev/random', 'rb').read())",
    ),
    Hostile("fork bomb", "error timeout fail", "call 1 of total", "while True: os.fork()"),
    Hostile(
        "thread bomb",
        "error timeout fail",
        "call 1 of total",
        "while True: threading.Thread(target=time.sleep, args=(3600,)).start()",
    ),
)

PIPES = (
    Hostile(
        "closes all files", "error", "closed the pipe", "os.closerange(0, 4096)\ntime.sleep(3600)", plain=True
    ),
    Hostile("closes files, returns", "error", "during call 1", "os.closerange(0, 4096)\nreturn sum(numbers)"),
    Hostile(
        "writes to every pipe",
        "error",
        "grader's pipe",
        "for fd in range(3, 64): write(fd, b'pass' * 1000)\nreturn sum(numbers)",
    ),
    Hostile(
        "forged answer",
        "error",
        OTHER,
        "body = msgspec.msgpack.encode([11, b'0123456789abcdef', sum(numbers)])\n"
        "for fd in range(3, 64): write(fd, len(body).to_bytes(4, 'big') + body)\n"
        "return sum(numbers)",
        plain=True,
    ),
    Hostile(
        "forged length",
        "error",
        "grader's pipe",
        "for fd in range(3, 64): write(fd, b'\\xff\\xff\\xff\\xff')\nreturn sum(numbers)",
    ),
    Hostile(
        "half a frame",
        "timeout error",
        "call 1 of total",
        "for fd in range(3, 64): write(fd, b'\\x00\\x00\\xff\\xff')\nreturn sum(numbers)",
    ),
    Hostile(
        "a nest as a frame",
        "error",
        "grader's pipe",
        "body = b'\\x91' * 10**5 + b'\\xc0'\n"
        "for fd in range(3, 64): write(fd, len(body).to_bytes(4, 'big') + body)\nreturn sum(numbers)",
    ),
    Hostile("answers twice", "error", OTHER, "os.fork()\nreturn sum(numbers)", plain=True),
    Hostile("waits for input", "fail", "EOFError", "return input('number? ')"),
    Hostile("replaces tools", "error", "call 1 of total", "os.write = os.read = None\nos._exit(7)"),
)

PROCESSES = (*ENDINGS, *LOOPS, *RESOURCES, *PIPES)

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
    "stopped child": "if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)",
}
