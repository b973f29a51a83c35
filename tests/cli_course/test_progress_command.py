from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import Result

from tutor.journal.events import (
    ExerciseChecked,
    HintShown,
    LabRun,
    LessonOpened,
    PredictionMade,
    SolutionShown,
)
from tutor.journal.store import Journal

Run = Callable[..., Result]


def _work(journal: Journal) -> None:
    for event in (
        LessonOpened("root"),
        LessonOpened("root"),
        PredictionMade("root", "q", "1", "2", correct=False),
        PredictionMade("root", "q", "2", "2", correct=True),
        LabRun("root", "paged", 9),
        ExerciseChecked("root", "root", passed=False, failed_checks=("waste",)),
        HintShown("root", 0),
        ExerciseChecked("root", "root", passed=True),
        SolutionShown("root"),
        ExerciseChecked("leaf", "leaf", passed=False, failed_checks=("gather", "waste")),
        LessonOpened("gone"),
    ):
        journal.append(event)


def test_nothing_begun(run: Run, journal: Journal) -> None:
    result = run("progress")
    assert result.exit_code == 0
    assert result.stdout.startswith("0 of 5 lessons done, 4 written so far.\nNothing begun yet.")
    assert not journal.folder.exists()


def test_what_was_done_lesson_by_lesson(run: Run, journal: Journal) -> None:
    _work(journal)
    lines = run("progress").stdout.splitlines()
    assert lines[0] == "1 of 5 lessons done, 4 written so far."
    assert lines[2] == (
        "root  ✓ done         opened 2 times, 1 of 2 predictions right, 1 lab run, "
        "exercise passed at attempt 2, 1 hint, solution shown"
    )
    assert lines[3] == "leaf  ◇ in progress  1 attempt (still failing: gather; waste)"
    assert len(lines) == 4


def test_narrow_screens(run: Run, journal: Journal) -> None:
    _work(journal)
    lines = run("--ascii", "progress", COLUMNS="60").stdout.splitlines()
    assert max(len(line) for line in lines) <= 60
    assert lines[2].startswith("root  x done         opened 2 times")
    assert lines[3].startswith(" " * 21)


def test_json(run: Run, journal: Journal) -> None:
    _work(journal)
    data = json.loads(run("progress", "--json").stdout)
    assert data["lessons_done"] == 1
    assert data["events"] == 11
    root = data["lessons"]["root"]
    assert (root["status"], root["times_opened"]) == ("done", 2)
    assert (root["predictions"], root["predictions_right"], root["lab_runs"]) == (2, 1, 1)
    assert data["lessons"]["gone"]["status"] is None
    assert data["exercises"]["root"]["attempts_until_pass"] == 2
    assert data["exercises"]["leaf"]["last_failed_checks"] == ["gather", "waste"]


def test_a_newer_journal_cannot_be_shown(run: Run, journal: Journal) -> None:
    journal.folder.mkdir()
    journal.path.write_text('{"journal":"inference-tutor","schema":9}\n')
    result = run("progress")
    assert result.exit_code == 3
    assert "newer tutor" in result.stderr
