"""Which of the guest's limits this platform has, tried for real: for `tutor doctor`.

Each trial runs in a child process, since a limit or a namespace cannot be taken back.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tutor.llama.machine import Finding

_SECONDS = 20.0
_ROOT = str(Path(__file__).resolve().parents[2])
_MEMORY = """
from tutor.grading import sandbox
sandbox.limit(256 * 2**20, 60, False)
try:
    bytearray(10**9)
except MemoryError:
    print("enforced")
"""
_NAMESPACES = """
import os
from tutor.grading import hiding, sandbox
note = sandbox.enter_namespaces()
if note:
    print(note)
elif not (child := os.fork()):
    os.mkdir("hidden")
    open("hidden/file", "w").close()
    os.mkdir("work")
    hidden = os.path.abspath("hidden")
    os.chdir("work")
    hiding.hide([hidden], True)
    os._exit(bool(os.listdir(hidden)))
else:
    print("granted" if os.waitpid(child, 0)[1] == 0 else "namespaces are granted here, but no mounts in them")
"""
_SUBREAPER = """
import os, signal
from tutor.grading import sandbox
sandbox.adopt_orphans()
if not os.fork():
    if not os.fork():
        os.closerange(0, 3)
        signal.alarm(10)  # where nobody ends it
        signal.pause()
    os._exit(0)
os.wait()
print("ended" if sandbox.sweep_orphans([]) == 1 else "left")
"""


def findings() -> list[Finding]:
    """Time and files, memory, processes, isolation: what holds here and what does not."""
    return [_always(), _memory(), _orphans(), _isolation()]


def _always() -> Finding:
    kinds = ("RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE")
    missing = [kind for kind in kinds if not hasattr(resource, kind)]
    detail = "your code is limited in time a call and a run, CPU time, file size, open files, printed output"
    return Finding("limits", not missing, f"this system lacks {', '.join(missing)}" if missing else detail)


def _memory() -> Finding:
    said = _try(_MEMORY)
    if said == "enforced":
        return Finding("memory", True, "the address space of your code is limited")
    way_out = "Code that asks for too much memory is stopped by its time limit only."
    return Finding("memory", False, f"{platform.system()} does not enforce the limit of memory", way_out)


def _orphans() -> Finding:
    said = _try(_SUBREAPER) if sys.platform == "linux" else "no subreaper"
    if said == "ended":
        return Finding("processes", True, "what your code leaves running is found and ended")
    way_out = "The group of your code is ended; a process that left its group may go on."
    return Finding("processes", False, "this system hands no orphaned processes to the judge", way_out)


def _isolation() -> Finding:
    said = _try(_NAMESPACES)
    if said == "granted":
        count = "" if os.getuid() else "; as root, the number of processes is not limited"
        detail = "your code has no network, sees no other process and no solution (namespaces)"
        return Finding("isolation", True, f"{detail}{count}")
    reason = said or "the trial ended early"
    way_out = "Checks work. Network, other processes and, for code that tries hard, solutions are in reach."
    return Finding("isolation", False, reason.rstrip("."), way_out)


def _try(program: str) -> str:
    """What the program printed last, run in a folder of its own; "" when it failed."""
    starter = f"import sys; sys.path.insert(0, {_ROOT!r})\n{program}"
    with tempfile.TemporaryDirectory(prefix="inference-tutor-limits-") as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-c", starter],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
    return done.stdout.strip() if done.returncode == 0 else ""
