"""A verdict as lines of plain text: what `tutor check` prints and `tutor watch` shows."""

from __future__ import annotations

from tutor.grading.verdict import CheckResult, Verdict

_WORDS = {"pass": "pass", "fail": "FAIL", "error": "ERROR", "timeout": "TIMEOUT"}
_INDENT = " " * 11
_OUTPUT_LINES = 20


def check_lines(result: CheckResult, said: str = "") -> list[str]:
    """One line for a pass; for the rest also message, values and trace.

    `said` is the message of the failing check just before: the same one is not said again.
    """
    lines = [f"  {_WORDS[result.status]:<7}  {result.name}: {result.against}"]
    if result.status == "pass":
        return lines
    again = result.message and result.message == said
    lines += [_INDENT + line for line in (["(the same)"] if again else result.message.splitlines())]
    for label, text in (("expected", result.expected), ("got", result.actual)):
        if text:
            lines.append(f"{_INDENT}{label + ':':<9} {text}")
    if result.trace:
        at = f" --at {result.step}" if result.step is not None else ""
        lines.append(f"{_INDENT}replay:   tutor replay {result.trace}{at}")
    return lines


def end_lines(verdict: Verdict) -> list[str]:
    """Message of the whole file, what the code printed (its first lines), and the sum."""
    lines = [f"  {line}" for line in verdict.message.splitlines()]
    if verdict.output:
        printed = verdict.output.splitlines()
        lines.append("  Your code printed:")
        lines += [f"    {line[:200]}" for line in printed[:_OUTPUT_LINES]]
        if len(printed) > _OUTPUT_LINES:
            lines.append(f"    … {len(printed) - _OUTPUT_LINES} more lines")
    return [*lines, sum_line(verdict)]


def sum_line(verdict: Verdict) -> str:
    """`Passed: 2 of 2 checks in 0.4 s (seed 1, model SmolLM2 …).`"""
    passed = sum(result.status == "pass" for result in verdict.checks)
    word = "Passed" if verdict.passed else "Not passed"
    model = f", model {verdict.model}" if verdict.model else ""
    spent = f"in {verdict.seconds:.1f} s (seed {verdict.seed}{model})"
    return f"{word}: {passed} of {len(verdict.checks)} checks {spent}."
