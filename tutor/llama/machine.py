"""What a machine needs apart from the engine: terminal, Python, compiler, writable folders."""

from __future__ import annotations

import codecs
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MIN_COLUMNS, MIN_ROWS = 80, 24
MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 50_000_000
COMPILERS = {"C": ("cc", "gcc", "clang"), "C++": ("c++", "g++", "clang++")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `needed` says whether the tutor cannot run while it is a problem."""

    name: str
    ok: bool
    detail: str
    way_out: str = ""
    needed: bool = False


def check_terminal(env: Mapping[str, str], size: tuple[int, int] | None, encoding: str) -> list[Finding]:
    """Size (columns, rows; None when the output is not a terminal), TERM and colours, UTF-8."""
    if size is None:
        window = Finding("terminal", True, "the output is not a terminal, so its size is unknown")
    else:
        large = size[0] >= MIN_COLUMNS and size[1] >= MIN_ROWS
        way_out = "" if large else f"Make the window {MIN_COLUMNS} columns by {MIN_ROWS} rows or larger."
        window = Finding("terminal", large, f"{size[0]} columns, {size[1]} rows", way_out)
    return [window, _colours(env), _utf8(encoding)]


def _colours(env: Mapping[str, str]) -> Finding:
    term = env.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        return Finding("colours", False, f"TERM is {term or 'not set'}", "Type: export TERM=xterm-256color")
    if env.get("NO_COLOR"):
        return Finding("colours", True, f"{term}, switched off by NO_COLOR")
    if env.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("direct"):
        return Finding("colours", True, f"{term}, 16 million colours")
    return Finding("colours", True, f"{term}, {'256' if '256' in term else '8 or 16'} colours")


def _utf8(encoding: str) -> Finding:
    try:
        known = codecs.lookup(encoding).name
    except LookupError:
        known = ""
    if known == "utf-8":
        return Finding("encoding", True, "UTF-8")
    return Finding(
        "encoding",
        False,
        f"{encoding or 'unknown'}, so boxes and bars cannot be drawn",
        "Type: export LC_ALL=C.UTF-8, or start with: tutor --ascii",
    )


def terminal_size() -> tuple[int, int] | None:
    """Columns and rows of the terminal on stdout, None when stdout is none."""
    try:
        size = os.get_terminal_size(1)
    except OSError:
        return None
    return size.columns, size.lines


def check_python() -> Finding:
    """The interpreter's version."""
    wanted = ".".join(map(str, MIN_PYTHON))
    return Finding(
        "Python",
        sys.version_info >= MIN_PYTHON,
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        f"Install Python {wanted} or newer.",
        needed=True,
    )


def check_compiler(engine_works: bool, search: str | None = None) -> Finding:
    """C and C++ compilers on the path. They are needed only to install the engine."""
    found = {
        language: next((place for name in names if (place := shutil.which(name, path=search))), None)
        for language, names in COMPILERS.items()
    }
    missing = [language for language, place in found.items() if place is None]
    if not missing:
        return Finding("compiler", True, ", ".join(f"{key}: {place}" for key, place in found.items()))
    detail = f"no {' and no '.join(missing)} compiler"
    if engine_works:
        return Finding("compiler", True, f"{detail}; the engine is installed, so none is needed now")
    if sys.platform == "darwin":
        return Finding("compiler", False, detail, "Type: xcode-select --install")
    return Finding(
        "compiler", False, detail, "Install gcc and g++ (on Debian: sudo apt install build-essential)."
    )


def check_folder(name: str, folder: Path, variable: str) -> Finding:
    """Can files be made in a folder, or in the nearest one above it that exists? Leaves no trace."""
    place = next((at for at in (folder, *folder.parents) if at.exists()), folder)
    way_out = f"Make it writable, or set {variable} to another folder."
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(name, False, f"{folder}: {error.strerror or error}", way_out, needed=True)
    detail = f"{folder}, {free / 1e9:.1f} GB free"
    return Finding(name, free >= MIN_FREE_BYTES, detail, "Free some disk space.", needed=True)
