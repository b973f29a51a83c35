"""Which Node.js runs the TypeScript variants of exercises: the one of TUTOR_NODE, or `node` on PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache

from tutor.grading.errors import JudgeError
from tutor.llama.machine import Finding

OLDEST = ((22, 18), (23, 6))  # of 22, and of all later ones: from here on Node strips types by itself
NEEDED = "Node.js 22.18 or newer (of 23: 23.6)"
_SECONDS = 20.0


def find_node() -> tuple[str, str]:
    """(path, version) of a Node.js that runs TypeScript; JudgeError says which is needed and what is here."""
    path = shutil.which(os.environ.get("TUTOR_NODE") or "node")
    if path is None:
        named = os.environ.get("TUTOR_NODE")
        here = f"TUTOR_NODE names {named}, which cannot be run" if named else "there is no `node` on PATH"
        raise JudgeError(f"{NEEDED} is needed for TypeScript; {here}.")
    stamp = os.stat(path)
    version = _version(path, (stamp.st_ino, stamp.st_mtime_ns, stamp.st_size))
    if not _recent(version):
        has = f"this machine has {version}" if version else "it does not tell its version"
        raise JudgeError(f"{NEEDED} is needed for TypeScript; {has} ({path}). TUTOR_NODE can name another.")
    return os.path.abspath(path), version


def node_problem() -> str:
    """Why TypeScript cannot be run here, or ""."""
    try:
        find_node()
    except JudgeError as error:
        return str(error)
    return ""


def finding() -> Finding:
    """For `tutor doctor`."""
    try:
        path, version = find_node()
    except JudgeError as error:
        return Finding("Node.js", True, f"only for TypeScript, not for Python: {str(error).rstrip('.')}")
    return Finding("Node.js", True, f"{version} ({path}): exercises in TypeScript can be graded")


@lru_cache(maxsize=8)
def _version(path: str, stamp: tuple[int, int, int]) -> str:
    """What `node --version` prints, such as `v24.1.0`; "" when that fails. A changed file is asked again."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _recent(version: str) -> bool:
    found = re.fullmatch(r"v(\d+)\.(\d+)\.\S+", version)
    if found is None:
        return False
    number = (int(found[1]), int(found[2]))
    return number >= OLDEST[1] or (number[0] == OLDEST[0][0] and number >= OLDEST[0])
