"""What a learner is told about a file that cannot be imported and a call that raised or took too long."""

from __future__ import annotations

from tutor.grading.calls import LearnerError
from tutor.grading.process import GuestTimeout
from tutor.grading.verdict import Status


def import_sentence(error: LearnerError, name: str, language: str = "Python") -> str:
    """Why the learner's file cannot be imported."""
    trail = "".join(f"\n{line}" for line in error.lines)
    if error.kind == "MissingEntry":
        return error.message
    if error.kind in ("SyntaxError", "IndentationError", "TabError"):
        line = error.where.rpartition(":")[2]
        text = "".join(f"\n    {line}" for line in error.lines)
        return f"{name}, line {line} is not valid {language}: {error.message}.{text}"
    if error.kind == "NeverSettled":
        return f"{name} never finishes its import: it waits for a promise that nothing can settle any more."
    if error.kind in ("SystemExit", "KeyboardInterrupt"):
        return (
            f"Your code ended the process (exit code {error.message or 1}) while {name} was imported.{trail}"
        )
    return f"{name} raises {_named(error)} when it is imported.{trail}"


def all_too_long(error: GuestTimeout) -> str:
    """All calls together took longer than their limit."""
    return f"The calls of all checks together took longer than {error.limit:g} s."


def call_sentence(error: LearnerError, now: str) -> tuple[Status, str]:
    """Status and message for an exception in the learner's code during a call."""
    trail = "".join(f"\n{line}" for line in error.lines)
    if error.kind in ("SystemExit", "KeyboardInterrupt"):
        return "error", f"Your code ended the process (exit code {error.message or 1}) during {now}.{trail}"
    if error.kind == "NotImplementedError":
        task = error.message.removeprefix(f"{error.call}: ") or "it raises NotImplementedError"
        return "fail", f"{error.call} is not written yet: {task.rstrip('.')}."
    if error.kind == "NotPlain":
        sentence = (
            f"{error.call} returned {error.message}; the checks need plain values: numbers, text, lists"
        )
        return "fail", f"{sentence}, dicts, arrays or an object whose fields are such values."
    if error.kind == "NeverSettled":
        waits = "it waits for a promise that nothing can settle any more"
        return "error", f"{error.call} never returns: {waits} ({now})."
    if error.kind == "MemoryError":
        return "error", f"Your code ran out of memory during {now}.{trail}"
    return "fail", f"Your code raises {_named(error)} during {now}.{trail}"


def _named(error: LearnerError) -> str:
    return f"{error.kind}: {error.message}" if error.message else error.kind
