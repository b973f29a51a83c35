"""Names as people type them: a title, an alias, a lesson that is not written, a slip of the finger."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tutor.cli.main import cli
from tutor.curriculum.loader import load_course
from tutor.grading.exercise import find_exercise


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUTOR_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TUTOR_WORKSPACE", str(tmp_path / "work"))
    return tmp_path / "work"


def tutor(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_an_exercise_is_found_by_its_lessons_title(work: Path) -> None:
    result = tutor("start", "the kv CACHE")
    assert result.exit_code == 0
    assert (work / find_exercise("kv-cache").file).is_file()


@pytest.mark.parametrize("command", ["start", "hint", "check", "reset", "solution"])
def test_a_lesson_that_is_not_written_says_so(work: Path, command: str) -> None:
    lesson = next((lesson for lesson in load_course() if not lesson.written), None)
    if lesson is None:
        pytest.skip("every lesson is written")
    result = tutor(command, lesson.id)
    assert result.exit_code == 3
    assert result.stderr == f"The lesson {lesson.id} is not written yet. `tutor list` shows which ones are.\n"


def test_a_slip_of_the_finger_gets_the_nearest_command() -> None:
    result = tutor("chek", "kv-cache")
    assert result.exit_code == 2 and "No such command 'chek'. Did you mean check?" in result.stderr
    assert "Did you mean" not in tutor("xyzzy").stderr


def test_hints_are_whole_paragraphs(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = tutor("hint", "request").stdout
    assert max(map(len, shown.splitlines())) <= 60
    assert " ".join(shown.split()) == "Hint 1 of {}: {}".format(
        len(find_exercise("request").hints), " ".join(find_exercise("request").hints[0].split())
    )


def test_a_full_disk_leaves_no_half_exercise(work: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))  # writing the 17th byte of a file fails
    try:
        result = tutor("start", "request")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.exit_code == 3 and "Cannot write" in result.stderr
    assert list(work.iterdir()) == []
    assert tutor("start", "request").exit_code == 0


def test_a_lab_is_found_by_its_lessons_title() -> None:
    result = tutor("lab", "Run a model on your Mac", "--knobs")
    assert result.exit_code == 0 and result.output == tutor("lab", "run-local", "--knobs").output
    assert tutor("lab", "Batches of nonsense", "--knobs").exit_code == 2


def test_what_to_write_fits_the_terminal(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    output = tutor("start", "run-local").output
    statement = output[: output.index("    stream(")]
    assert all(len(line) <= 60 for line in statement.splitlines())
    assert "`" not in statement and "stream(read, show) reads a chat completion" in statement
