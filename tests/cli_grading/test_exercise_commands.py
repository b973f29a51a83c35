"""start, check, hint, solution, reset and author as a learner or a script calls them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tutor.cli.check import CheckPrinter
from tutor.cli.main import cli
from tutor.grading.verdict import CheckResult, Status
from tutor.journal.events import AnyEvent, ExerciseChecked, ExerciseReset, HintShown, SolutionShown
from tutor.journal.store import Journal

EXERCISES = Path(__file__).parents[1] / "grading" / "exercises"
Tutor = Callable[..., Result]


@pytest.fixture
def tutor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tutor:
    """Runs `tutor …` on the test exercises, with all folders under tmp_path."""
    for name in ("CACHE", "DATA", "WORKSPACE"):
        monkeypatch.setenv(f"TUTOR_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr("tutor.resources.exercises_dir", lambda: EXERCISES)

    def run(*args: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(args), input=input, catch_exceptions=False)

    return run


def events(kind: type[AnyEvent]) -> list[AnyEvent]:
    return [event for event in Journal().read().events if isinstance(event, kind)]


def test_from_start_to_pass(tutor: Tutor, tmp_path: Path) -> None:
    path = tmp_path / "workspace" / "total.py"
    started = tutor("start", "sum")
    assert started.exit_code == 0 and str(path) in started.output and "total(numbers" in started.output

    failed = tutor("check", "sum")
    assert failed.exit_code == 1
    assert "FAIL     random lists: ten lists" in failed.output
    assert failed.output.count("total is not written yet: add the numbers up.") == 1
    assert "FAIL     empty list: " in failed.output and "\n           (the same)\n" in failed.output
    assert "Not passed: 0 of 2 checks" in failed.output

    path.write_text((EXERCISES / "sum" / "mutants" / "skips_first.py").read_text())
    named = tutor("check")  # the file changed last
    assert named.exit_code == 1 and "You leave out the first number." in named.output
    assert "expected:" in named.output and "got:" in named.output

    path.write_text((EXERCISES / "sum" / "solution.py").read_text())
    passed = tutor("check", "sum")
    assert passed.exit_code == 0 and "Passed: 2 of 2 checks" in passed.output
    recorded = [
        (e.passed, e.failed_checks) for e in events(ExerciseChecked) if isinstance(e, ExerciseChecked)
    ]
    assert recorded == [
        (False, ("random lists", "empty list")),
        (False, ("random lists",)),
        (True, ()),
    ]


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_model_that_is_none_is_said_first_and_only(
    tutor: Tutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also where the checks that come first need no model: they would fail for reasons that do not matter."""
    assert tutor("start", "sum").exit_code == 0
    wrong = str(tmp_path / "none.gguf")
    if how == "environment":
        monkeypatch.setenv("TUTOR_MODEL", wrong)
    done = tutor("check", "sum", *(["--against", wrong] if how == "option" else []))
    assert done.exit_code == 3 and done.stdout == ""
    assert done.stderr.startswith(f"The model file {wrong}") and "does not exist" in done.stderr
    assert not events(ExerciseChecked)


def test_a_message_in_a_row_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[tuple[Status, str]] = [
        ("fail", "A."), ("fail", "A."), ("error", "A."), ("pass", ""), ("fail", "A."), ("fail", "B."),
    ]  # fmt: skip
    show = CheckPrinter()
    for number, (status, message) in enumerate(said):
        show(CheckResult(name=f"check {number}", status=status, message=message, actual="x" * (number == 2)))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if "check" not in line] == [
        "A.",
        "(the same)",
        "(the same)",
        "got:      x",
        "A.",
        "B.",
    ]


def test_start_twice_keeps_the_file(tutor: Tutor, tmp_path: Path) -> None:
    tutor("start", "sum")
    path = tmp_path / "workspace" / "total.py"
    path.write_text(path.read_text().replace("version 1", "version 0") + "# mine\n")
    again = tutor("start", "sum")
    assert "Already there" in again.output and "begun for version 0" in again.output
    assert "begun for version 0" in tutor("check", "sum").output
    assert path.read_text().endswith("# mine\n")


def test_check_json(tutor: Tutor) -> None:
    solution = str(EXERCISES / "sum" / "solution.py")
    verdict = json.loads(tutor("check", "sum", "--json", "--file", solution, "--seed", "9").output)
    assert (verdict["status"], verdict["seed"], verdict["schema"]) == ("pass", 9, 1)
    tutor("start", "sum")
    tutor("start", "calls")
    done = tutor("check", "--all", "--json")
    assert done.exit_code == 1
    assert [item["exercise"] for item in json.loads(done.output)] == ["calls", "sum"]


def test_output_of_the_code_is_shown(tutor: Tutor, tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    path.write_text("def total(numbers):\n    print('hello from total')\n    return sum(numbers)\n")
    done = tutor("check", "sum", "--file", str(path))
    assert done.exit_code == 0 and "Your code printed:\n    hello from total" in done.output


@pytest.mark.parametrize(
    ("args", "code", "phrase"),
    [
        (["check"], 2, "`tutor start ID` puts one there"),
        (["check", "summ"], 2, "Did you mean sum?"),
        (["check", "sum"], 3, "There is no file"),
        (["check", "sum", "--all"], 2, "not both"),
        (["check", "--file", "x.py"], 2, "needs the exercise's id"),
        (["start", "nothing"], 2, "There is no exercise 'nothing'"),
        (["hint", "nothing"], 2, "There is no exercise 'nothing'"),
        (["solution", "sum"], 2, "Add --yes"),
    ],
)
def test_wrong_use_is_one_sentence(tutor: Tutor, args: list[str], code: int, phrase: str) -> None:
    done = tutor(*args)
    assert done.exit_code == code and phrase in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_hints_open_one_by_one(tutor: Tutor) -> None:
    assert "No hint is open yet" in tutor("hint", "sum", "--again").output
    outputs = [tutor("hint", "sum").output for _ in range(4)]
    assert [output.split(":")[0] for output in outputs] == [
        "Hint 1 of 3",
        "Hint 2 of 3",
        "Hint 3 of 3",
        "Hint 3 of 3",
    ]
    assert "That was the last one" in outputs[3]
    assert len(events(HintShown)) == 3
    assert tutor("hint", "sum", "--again").output.count("Hint ") == 3


def test_the_solution_after_a_pass_or_on_request(tutor: Tutor) -> None:
    assert "result += number" in tutor("solution", "sum", "--yes").output
    tutor("check", "sum", "--file", str(EXERCISES / "sum" / "solution.py"))
    shown = tutor("solution", "sum")
    assert shown.exit_code == 0 and "result += number" in shown.output
    assert len(events(SolutionShown)) == 2


def test_reset_backs_up(tutor: Tutor, tmp_path: Path) -> None:
    tutor("start", "sum")
    path = tmp_path / "workspace" / "total.py"
    path.write_text("mine")
    done = tutor("reset", "sum")
    (backup,) = path.parent.glob("*.bak")
    assert backup.read_text() == "mine" and str(backup) in done.output
    assert "raise NotImplementedError" in path.read_text()
    assert len(events(ExerciseReset)) == 1


def test_author_lint_and_mutate(tutor: Tutor) -> None:
    clean = tutor("author", "lint", "sum")
    assert clean.exit_code == 0 and clean.output == "sum: ok\n"
    done = tutor("author", "mutate", "sum", "--limit", "3")
    assert done.exit_code == 0 and done.output == "3 mutations, 3 noticed, 0 survived.\n"


def test_a_journal_that_cannot_be_written_costs_no_verdict(tutor: Tutor, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    done = tutor("check", "sum", "--file", str(EXERCISES / "sum" / "solution.py"))
    assert done.exit_code == 0 and "Passed: 2 of 2" in done.output
    assert "Not recorded:" in done.stderr
