"""What the operating system does for the guest: limits, namespaces, and ends that leave nothing behind.

Everything here runs in the guest's own processes, before and while the learner's file is loaded. Each
protection that a system lacks is skipped and named in the notes; guest.py's docstring lists what is covered.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable
from typing import NoReturn

from tutor.grading.memory import KEEP_MEMORY

OPEN_FILES = 64
FILE_BYTES = 16 * 2**20
PROCESSES = 64
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000

ENVIRONMENT = {
    **KEEP_MEMORY,
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def guest_environment(folder: str) -> dict[str, str]:
    """The whole environment of a guest: nothing of the learner's shell reaches it."""
    return {**ENVIRONMENT, "HOME": folder, "TMPDIR": folder}


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere the group kill has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Linux: processes that a guest leaves behind become children of this process, which can end them."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_namespaces() -> str:
    """User, process, mount and network namespaces: the next child reaches no other process and no network.

    Returns an empty string, or a sentence when the kernel does not grant it to this user.
    """
    if sys.platform != "linux":
        return "this system has no namespaces: the network and other processes stay reachable"
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWNS) != 0:
        reason = os.strerror(ctypes.get_errno())
        return f"no namespaces here ({reason}): the network and other processes stay reachable"
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    except OSError as error:
        return f"the user id could not be mapped in the namespace ({error.strerror})"
    return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def supervise(child: int, close: Iterable[int]) -> NoReturn:
    """Wait for the process that runs the learner's code and end in the same way as it did.

    This process is what the learner's code sees as its parent; it holds none of the pipes.
    """
    for fd in (0, 1, 2, *close):
        os.close(fd)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:  # SIGKILL has no handler to reset
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def limit(memory_bytes: int, cpu_seconds: int, own_processes: bool, kind: int = resource.RLIMIT_AS) -> None:
    """Set the limits of this process; what it starts inherits them. They can only be lowered later.

    own_processes: the process count is per namespace here, so a small limit does not hit the user's other
    programs. Root is exempt from it. kind: which memory counts (address space, or writable: RLIMIT_DATA).
    """
    _lower(kind, memory_bytes)
    _lower(resource.RLIMIT_CPU, cpu_seconds)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_CORE, 0)
    if own_processes:
        _lower(resource.RLIMIT_NPROC, PROCESSES)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(which, (wanted, wanted))
    except (ValueError, OSError):
        # macOS refuses RLIMIT_AS below what is mapped already; the time limits still hold there
        return


def end_group(leader: int) -> None:
    """SIGKILL to a guest's whole process group; a group that has ended already is fine."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def sweep_orphans(keep: Iterable[int]) -> int:
    """Linux, after `adopt_orphans`: kill and reap this process's children that are not in `keep`."""
    if sys.platform != "linux":
        return 0
    kept, ended = set(keep), 0
    while strays := [pid for pid in _children() if pid not in kept]:
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            ended += 1
    return ended


def _children() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # the name in parentheses may hold anything; the parent is the second word after it
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == os.getpid():
                found.append(int(name))
    return found
