"""The result of grading one file: frozen, versioned, and JSON on disk and on stdout."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1

Status = Literal["pass", "fail", "error", "timeout"]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One check. `against` says what was compared with what; `where` is the first point of difference.

    fail     the answer is wrong, or the learner's code raised an exception
    error    there is no answer: the code ended its process, or was not run at all
    timeout  the code did not answer within the limit that `message` names
    """

    name: str
    status: Status
    against: str = ""
    message: str = ""
    expected: str = ""
    actual: str = ""
    where: str = ""
    misconception: str = ""
    trace: str = ""
    step: int | None = None
    seconds: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of one run. `message` is set when the file as a whole could not be checked.

    `seconds` is the whole run, `model_seconds` the part of it that llama.cpp computed, `code_seconds` the
    part that the learner's code took (by the guest's own clock, callbacks not counted), `output` what the
    learner's code printed (capped).
    """

    exercise: str
    version: int
    status: Status
    checks: tuple[CheckResult, ...]
    seed: int
    model: str = ""
    message: str = ""
    seconds: float = 0.0
    model_seconds: float = 0.0
    code_seconds: float = 0.0
    output: str = ""
    schema: int = SCHEMA

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """Names of the checks that did not pass, in order."""
        return tuple(result.name for result in self.checks if result.status != "pass")


def overall(checks: tuple[CheckResult, ...], expected: int) -> Status:
    """Pass only if every one of `expected` checks passed; otherwise the first status that is not a pass."""
    for result in checks:
        if result.status != "pass":
            return result.status
    return "pass" if checks and len(checks) == expected else "error"


def to_json(verdict: Verdict) -> str:
    """Readable JSON, the same bytes for the same verdict."""
    return msgspec.json.format(msgspec.json.encode(verdict), indent=2).decode()


def from_json(text: str | bytes) -> Verdict:
    """Read a verdict; msgspec.ValidationError when it is not one of this schema."""
    verdict = msgspec.json.decode(text, type=Verdict)
    if verdict.schema != SCHEMA:
        raise msgspec.ValidationError(f"verdict schema {verdict.schema}, expected {SCHEMA}")
    return verdict
