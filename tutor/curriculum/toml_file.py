"""Reads one TOML file into a msgspec Struct; every fault becomes a CourseError with file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli

from tutor.curriculum.errors import CourseError

T = TypeVar("T")

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_HEADER = re.compile(r"\s*\[")


def read_toml(path: Path, kind: type[T]) -> T:
    """The file as `kind`. Raises CourseError: unreadable, not TOML, unknown key, wrong type, missing key."""
    text = read_text(path)
    try:
        data: dict[str, Any] = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise CourseError(error.msg, path, error.lineno) from None
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise CourseError(_reason(str(error)), path, _line_of_fault(text, str(error))) from None


def read_text(path: Path) -> str:
    """The file as UTF-8 text. Raises CourseError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CourseError("the file is missing", path) from None
    except UnicodeDecodeError as error:
        raise CourseError(f"not UTF-8 text (byte {error.start})", path) from None
    except OSError as error:
        raise CourseError(f"cannot be read: {error.strerror}", path) from None


def line_of(text: str, key: str, table: tuple[str, int] | None = None) -> int:
    """Line (from 1) of `key = `, with `table` (name, n) inside the n-th `[[name]]`; else the table's line."""
    lines = text.splitlines()
    start = 0
    if table is not None:
        name, index = table
        heads = [i for i, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]", line)]
        if index >= len(heads):
            return 1
        start = heads[index]
    wanted = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""") if key else None
    for number, line in enumerate(lines[start:], start + 1):
        if number > start + 1 and table is not None and _HEADER.match(line):
            break
        if wanted and wanted.match(line):
            return number
    return start + 1


def _reason(message: str) -> str:
    """msgspec speaks of objects and `$.paths`; a lesson writer thinks in keys."""
    reason, _, where = message.partition(" - at ")
    reason = reason.replace("Object contains unknown field", "unknown key")
    reason = reason.replace("Object missing required field", "missing key")
    path = where.strip("`").removeprefix("$").removeprefix(".")
    return f"{reason} (in {path})" if path else reason


def _line_of_fault(text: str, message: str) -> int:
    """The line that a ValidationError speaks of, as near as the text allows."""
    reason, _, where = message.partition(" - at ")
    steps = [name or int(number) for name, number in _STEP.findall(where)]
    table: tuple[str, int] | None = None
    if len(steps) >= 2 and isinstance(steps[0], str) and isinstance(steps[1], int):
        inside = line_of(text, "", (steps[0], steps[1]))
        if re.match(r"\s*\[\[", text.splitlines()[inside - 1]):
            table, steps = (steps[0], steps[1]), steps[2:]
    keys = [step for step in steps if isinstance(step, str)]
    named = re.search(r"unknown field `([^`]+)`", reason)
    key = keys[0] if keys else (named.group(1) if named else "")
    return line_of(text, key, table)
