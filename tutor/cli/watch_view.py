"""How `tutor watch` shows itself where no screen can be drawn: plain lines, or a verdict a line as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import click
import msgspec

from tutor.cli.verdict_view import check_lines, end_lines, sum_line
from tutor.grading.exercise import Exercise
from tutor.grading.verdict import Verdict


class View(Protocol):
    """What happens, as the session tells it. Nothing here waits or decides."""

    def opened(self, exercise: Exercise, path: Path, text: Sequence[str]) -> None:
        """This exercise is the one at hand now; `text` is what to do in it (empty when work has begun)."""

    def running(self, exercise: Exercise, part: str) -> None:
        """A run goes on; `part` says how far it is."""

    def verdict(self, exercise: Exercise, verdict: Verdict) -> None:
        """A run has ended."""

    def page(self, lines: Sequence[str]) -> None:
        """Hints or the list, on request."""

    def say(self, sentence: str, bad: bool = False) -> None:
        """What else there is to know."""

    def standing(self, passed: int, total: int, following: str) -> None:
        """Overall progress, and the next exercise (empty: none is left)."""


class PlainView:
    """Lines, one after another: for pipes, logs and screen readers."""

    def __init__(self) -> None:
        self._standing = ""

    def opened(self, exercise: Exercise, path: Path, text: Sequence[str]) -> None:
        click.echo(f"{exercise.title} — {path}")
        for line in text:
            click.echo(line)

    def running(self, exercise: Exercise, part: str) -> None:
        pass

    def verdict(self, exercise: Exercise, verdict: Verdict) -> None:
        click.echo(f"{exercise.id}:")
        for line in (*verdict_lines(verdict), sum_line(verdict), self._standing):
            click.echo(line)

    def page(self, lines: Sequence[str]) -> None:
        for line in lines:
            click.echo(line)

    def say(self, sentence: str, bad: bool = False) -> None:
        click.echo(sentence, err=bad)

    def standing(self, passed: int, total: int, following: str) -> None:
        self._standing = standing_line(passed, total, following)


class JsonView:
    """One line of JSON for each verdict on standard output, problems on standard error, nothing else."""

    def opened(self, exercise: Exercise, path: Path, text: Sequence[str]) -> None:
        pass

    def running(self, exercise: Exercise, part: str) -> None:
        pass

    def verdict(self, exercise: Exercise, verdict: Verdict) -> None:
        click.echo(msgspec.json.encode(verdict))

    def page(self, lines: Sequence[str]) -> None:
        pass

    def say(self, sentence: str, bad: bool = False) -> None:
        if bad:
            click.echo(sentence, err=True)

    def standing(self, passed: int, total: int, following: str) -> None:
        pass


def verdict_lines(verdict: Verdict) -> list[str]:
    """All checks and what the code printed, without the sum."""
    lines: list[str] = []
    said = ""
    for result in verdict.checks:
        lines += check_lines(result, said)
        said = "" if result.status == "pass" else result.message
    return lines + end_lines(verdict)[:-1]


def standing_line(passed: int, total: int, following: str) -> str:
    return f"{passed} of {total} passed. " + (f"Next: {following}" if following else "All done.")
