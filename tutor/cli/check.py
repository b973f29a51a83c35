"""`tutor check [ID]`: grade an exercise against the model and say what is wrong."""

from __future__ import annotations

from pathlib import Path

import click

from tutor.cli.exercise_view import (
    FAILED,
    USAGE,
    complete_exercise,
    exercise,
    explained,
    record,
    started,
    stop,
    workspace,
)
from tutor.grading.client import DEFAULT_SEED, run_check
from tutor.grading.exercise import Exercise
from tutor.grading.source import read_source
from tutor.grading.verdict import CheckResult, Verdict
from tutor.journal.events import ExerciseChecked

_WORDS = {"pass": "pass", "fail": "FAIL", "error": "ERROR", "timeout": "TIMEOUT"}


@click.command("check")
@click.argument("ident", metavar="[ID]", required=False, shell_complete=complete_exercise)
@click.option("--all", "check_all", is_flag=True, help="Check every exercise that you have started.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON (a list with --all).")
@click.option("--file", type=click.Path(path_type=Path), help="Grade this file instead of the workspace's.")
@click.option("--seed", type=click.IntRange(min=0), default=DEFAULT_SEED, show_default=True, help="Inputs.")
@click.pass_context
def command(
    ctx: click.Context, ident: str | None, check_all: bool, as_json: bool, file: Path | None, seed: int
) -> None:
    """Grade an exercise against the model. Without ID: the one whose file you changed last.

    Exit codes: 0 passed, 1 not passed, 2 wrong usage, 3 could not run.
    """
    verdicts = []
    for item, path in _chosen(ctx, ident, check_all, file):
        if not as_json:
            click.echo(f"{item.title} — {path}")
        with explained():
            read_source(path)  # a missing or unreadable file cannot run at all
            on_check = None if as_json else CheckPrinter()
            verdict = run_check(
                item.id,
                path,
                on_check,
                model=ctx.obj["model"],
                exercises=item.folder.parent,
                seed=seed,
            )
        verdicts.append(verdict)
        failed = verdict.failed_checks
        record(
            ExerciseChecked(exercise=item.id, lesson=item.lesson, passed=verdict.passed, failed_checks=failed)
        )
        if not as_json:
            _print_end(verdict)
    if as_json:
        _print_json(verdicts, check_all)
    if not all(verdict.passed for verdict in verdicts):
        raise click.exceptions.Exit(FAILED)


def _chosen(
    ctx: click.Context, ident: str | None, check_all: bool, file: Path | None
) -> list[tuple[Exercise, Path]]:
    if check_all and (ident or file):
        stop("Give an exercise id or --all, not both.", USAGE)
    if file is not None and ident is None:
        stop("--file needs the exercise's id, too.", USAGE)
    if ident is not None:
        item = exercise(ident)
        return [(item, file or workspace(ctx).path(item))]
    found = started(ctx)
    if not found:
        stop(f"There is no exercise file in {workspace(ctx).folder}; `tutor start ID` puts one there.", USAGE)
    return sorted(found, key=lambda pair: pair[0].id) if check_all else found[:1]


class CheckPrinter:
    """Prints each check as it finishes: one line for a pass; for the rest also message, place and values.

    A message that the failing check just before had, too, is not said again.
    """

    def __init__(self) -> None:
        self._said = ""  # the message of the check before, if that one failed

    def __call__(self, result: CheckResult) -> None:
        click.echo(f"  {_WORDS[result.status]:<7}  {result.name}: {result.against}")
        if result.status == "pass":
            self._said = ""
            return
        again = result.message and result.message == self._said
        for line in ("(the same)",) if again else result.message.splitlines():
            click.echo(f"           {line}")
        self._said = result.message
        for label, text in (("expected", result.expected), ("got", result.actual)):
            if text:
                click.echo(f"           {label + ':':<9} {text}")
        if result.trace:
            at = f" --at {result.step}" if result.step is not None else ""
            click.echo(f"           replay:   tutor replay {result.trace}{at}")


def _print_end(verdict: Verdict) -> None:
    if verdict.message:
        for line in verdict.message.splitlines():
            click.echo(f"  {line}")
    if verdict.output:
        click.echo("  Your code printed:")
        lines = verdict.output.splitlines()
        for line in lines[:20]:
            click.echo(f"    {line[:200]}")
        if len(lines) > 20:
            click.echo(f"    … {len(lines) - 20} more lines")
    passed = sum(result.status == "pass" for result in verdict.checks)
    total = len(verdict.checks)
    word = "Passed" if verdict.passed else "Not passed"
    model = f", model {verdict.model}" if verdict.model else ""
    click.echo(f"{word}: {passed} of {total} checks in {verdict.seconds:.1f} s (seed {verdict.seed}{model}).")


def _print_json(verdicts: list[Verdict], as_list: bool) -> None:
    from tutor.grading.verdict import to_json

    texts = [to_json(verdict) for verdict in verdicts]
    click.echo(f"[{', '.join(texts)}]" if as_list else texts[0])
