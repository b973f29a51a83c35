"""What the learner's code must not read: the solutions, the checks, stored references and other submissions.

With a mount namespace of its own the guest gets empty folders in their place, a working folder of bounded
size and, where the kernel lets it, a /proc that shows its own processes only; then it gives its privileges
up, so that nothing of this can be undone. Without one an audit hook refuses to open such files. The hook
sees what Python opens, not what a C function or another program does: it stops a look, no determined search.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

WORK_BYTES, WORK_FILES = 64 * 2**20, 4096
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522
_REFUSED = "the checks' own files are closed to your code"
_WATCHED = frozenset({"open", "os.listdir", "os.scandir", "os.chdir", "os.link", "os.rename", "os.symlink"})


def hide(folders: Iterable[str], own_mounts: bool) -> None:
    """Take the folders out of sight of this process and all that it starts. `own_mounts`: see the module."""
    real = tuple({os.path.realpath(folder) for folder in folders if os.path.isdir(folder)})
    if not (own_mounts and _mounted(real)):
        _refuse(real)


def _mounted(folders: tuple[str, ...]) -> bool:
    """Whether all mounts that matter could be made. Drops this process's privileges in any case."""
    libc = ctypes.CDLL(None, use_errno=True)
    closed = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    done = bool(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0)
    for folder in folders:
        empty = b"size=4k,nr_inodes=2,mode=555"
        mounted = libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", closed | _MS_RDONLY, empty)
        done = done and mounted == 0
    here = os.getcwd()
    size = f"size={WORK_BYTES},nr_inodes={WORK_FILES},mode=700".encode()
    if libc.mount(b"tmpfs", os.fsencode(here), b"tmpfs", _MS_NOSUID | _MS_NODEV, size) == 0:
        os.chdir(here)  # into the new mount
    # a container that masks parts of /proc may not mount it anew: then the old one stays, and other
    # processes can be listed, but neither read nor signalled from this namespace
    libc.mount(b"proc", b"/proc", b"proc", closed, None)
    _drop_privileges(libc)
    return done


def _drop_privileges(libc: ctypes.CDLL) -> None:
    """No capability in the guest's user namespace, and none through an exec either (see capset(2))."""
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _refuse(folders: tuple[str, ...]) -> None:
    """An audit hook; the interpreter has no way to take one out again."""
    realpath, fsdecode, own = os.path.realpath, os.fsdecode, str(os.getpid())
    kinds, watched, refused, separator = (str, bytes, os.PathLike), _WATCHED, _REFUSED, os.sep

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event not in watched or not args or not isinstance(args[0], kinds):
            return
        path = realpath(fsdecode(args[0]))
        inside = any(path == folder or path.startswith(folder + separator) for folder in folders)
        parts = path.split(separator, 3)
        process = parts[2] if len(parts) > 3 and parts[1] == "proc" else own
        if inside or (process.isdigit() and process != own):
            raise PermissionError(f"{path}: {refused}")

    sys.addaudithook(hook)
