"""`tutor check [ID…]`: grade exercises against the model and say what is wrong; also for a whole class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tutor.cli import check_targets
from tutor.cli.exercise_view import (
    COULD_NOT_RUN,
    FAILED,
    USAGE,
    complete_exercise,
    exercise,
    explained,
    language_option,
    record,
    stop,
)
from tutor.cli.verdict_view import check_lines, end_lines
from tutor.grading.batch import Graded, Submission, Watcher, grade_all
from tutor.grading.client import DEFAULT_SEED
from tutor.grading.engine import Engine
from tutor.grading.source import read_source
from tutor.grading.verdict import CheckResult
from tutor.grading.workspace import Workspace
from tutor.journal.events import ExerciseChecked
from tutor.llama.errors import EngineError

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command("check")
@click.argument("idents", metavar="[ID]...", nargs=-1, shell_complete=complete_exercise)
@click.option("--all", "check_all", is_flag=True, help="Check every exercise that has a file.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON (a list unless one ID).")
@click.option("--junit", type=_FILE, metavar="FILE", help="Also write the verdicts as JUnit XML.")
@click.option("--against", metavar="PATH.gguf", help="Grade against this model instead of the bundled one.")
@click.option("--file", type=click.Path(path_type=Path), help="Grade this file instead of the workspace's.")
@click.option(
    "--workspace",
    "folders",
    type=_FOLDER,
    multiple=True,
    metavar="DIR",
    help="Grade this folder of exercise files; may be repeated. Nothing goes into your journal.",
)
@click.option("--workspaces", "parent", type=_FOLDER, metavar="DIR", help="Grade every subfolder of DIR so.")
@language_option
@click.option("--seed", type=click.IntRange(min=0), default=DEFAULT_SEED, show_default=True, help="Inputs.")
@click.pass_context
def command(
    ctx: click.Context,
    idents: tuple[str, ...],
    check_all: bool,
    as_json: bool,
    junit: Path | None,
    against: str | None,
    file: Path | None,
    folders: tuple[Path, ...],
    parent: Path | None,
    language: str | None,
    seed: int,
) -> None:
    """Grade an exercise against the model. Without ID: the one whose file you changed last.

    Exit codes: 0 passed, 1 not passed, 2 wrong usage, 3 could not run.
    """  # fmt: skip
    chosen = _chosen(ctx, idents, check_all, file, check_targets.given(folders, parent), language)
    others = bool(folders or parent)
    many = len({each.folder for each in chosen}) > 1
    if len(chosen) == 1:
        with explained():
            read_source(chosen[0].path)  # a missing or unreadable file cannot run at all
    model = against or ctx.obj["model"]
    try:
        Engine(model).expect_named()  # said once, before the first title
    except EngineError as error:
        stop(str(error), COULD_NOT_RUN)
    watcher = _Silent(others) if as_json else _Rows(others) if many else _Details(others)
    done = grade_all(chosen, model, watcher, seed)
    if as_json:
        _print_json(done, check_all or len(idents) > 1, many)
    elif many:
        _print_sums(done)
    if junit is not None:
        _write_junit(junit, done)
    if any(graded.problem for graded in done):
        raise click.exceptions.Exit(COULD_NOT_RUN)
    if not all(graded.passed for graded in done):
        raise click.exceptions.Exit(FAILED)


def _chosen(
    ctx: click.Context,
    idents: tuple[str, ...],
    check_all: bool,
    file: Path | None,
    workspaces: list[tuple[str, Path]],
    language: str | None,
) -> list[Submission]:
    if check_all and (idents or file):
        stop("Give exercise ids or --all, not both.", USAGE)
    if file is not None and len(idents) != 1:
        stop("--file needs the exercise's id, too: one.", USAGE)
    if file is not None and workspaces:
        stop("Give --file or a workspace, not both.", USAGE)
    if language is not None and (file is not None or not idents):
        stop("--language needs the ids of exercises, and no --file: its name tells the language.", USAGE)
    if file is not None:
        return [Submission(exercise(idents[0]).for_file(file), file, "", file.parent)]
    if not workspaces:
        return check_targets.own(ctx, idents, check_all, language)
    if not idents and not check_all:
        stop("Name the exercises to grade there, or give --all.", USAGE)
    return check_targets.submissions(workspaces, idents, language)


class _Silent(Watcher):
    """Says what could not run, and records the learner's own attempts."""

    def __init__(self, others: bool) -> None:
        self._others = others

    def ended(self, graded: Graded) -> None:
        if graded.problem:
            click.echo(graded.problem, err=True)
        verdict, item = graded.verdict, graded.submission.exercise
        if verdict is not None and not self._others:
            failed = verdict.failed_checks
            record(
                ExerciseChecked(
                    exercise=item.id, lesson=item.lesson, passed=verdict.passed, failed_checks=failed
                )
            )


class _Details(_Silent):
    """Every check of one learner as it finishes."""

    def begins(self, submission: Submission) -> None:
        click.echo(f"{submission.exercise.title} — {submission.path}")
        workspace = Workspace(submission.folder)
        if workspace.path(submission.exercise) == submission.path:
            for line in workspace.news(submission.exercise):
                click.echo(f"  {line}")
        self._print = CheckPrinter()

    def checked(self, result: CheckResult) -> None:
        self._print(result)

    def ended(self, graded: Graded) -> None:
        super().ended(graded)
        if graded.verdict is not None:
            for line in end_lines(graded.verdict):
                click.echo(line)
        elif graded.missing:
            click.echo("  There is no such file.")


class _Rows(_Silent):
    """One line a submission, since there are many."""

    def ended(self, graded: Graded) -> None:
        super().ended(graded)
        submission = graded.submission
        click.echo(f"{submission.workspace:<20} {submission.exercise.id:<16} {_row(graded)}")


def _row(graded: Graded) -> str:
    verdict = graded.verdict
    if verdict is None:
        return "no file" if graded.missing else "could not run"
    passed = sum(result.status == "pass" for result in verdict.checks)
    head = (
        f"{'pass' if verdict.passed else verdict.status.upper():<8}{passed} of {len(verdict.checks)} checks"
    )
    first = next((result for result in verdict.checks if result.status != "pass"), None)
    said = verdict.message or (f"{first.name}: {first.message}" if first else "")
    return f"{head}  {said.splitlines()[0]}" if said else head


class CheckPrinter:
    """Prints each check as it finishes: one line for a pass; for the rest also message, place and values.

    A message that the failing check just before had, too, is not said again.
    """

    def __init__(self) -> None:
        self._said = ""  # the message of the check before, if that one failed

    def __call__(self, result: CheckResult) -> None:
        for line in check_lines(result, self._said):
            click.echo(line)
        self._said = "" if result.status == "pass" else result.message


def _print_sums(done: Sequence[Graded]) -> None:
    """How far each workspace has come."""
    click.echo()
    for name in dict.fromkeys(graded.submission.workspace for graded in done):
        of_it = [graded for graded in done if graded.submission.workspace == name]
        click.echo(f"{name:<20} {sum(graded.passed for graded in of_it)} of {len(of_it)} passed")


def _print_json(done: Sequence[Graded], as_list: bool, many: bool) -> None:
    from tutor.grading.verdict import to_json

    texts = [to_json(graded.verdict) for graded in done if graded.verdict is not None]
    if many:
        click.echo(_with_workspaces(done))
    elif as_list:
        click.echo(f"[{', '.join(texts)}]")
    elif texts:
        click.echo(texts[0])


def _with_workspaces(done: Sequence[Graded]) -> str:
    import msgspec

    rows = [
        {
            "workspace": graded.submission.workspace,
            "exercise": graded.submission.exercise.id,
            "verdict": graded.verdict,
            "problem": "There is no file." if graded.missing else graded.problem,
        }
        for graded in done
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def _write_junit(path: Path, done: Sequence[Graded]) -> None:
    from tutor.grading.junit import junit_xml

    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(junit_xml(done), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        stop(f"Cannot write {path} ({error.strerror}).", COULD_NOT_RUN)
