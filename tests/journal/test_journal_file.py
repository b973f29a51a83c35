"""The journal file: what is written is read, cut-off lines cost nothing else, faults are sentences."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tutor.journal.events import (
    AnyEvent,
    ExerciseChecked,
    ExerciseReset,
    HintShown,
    LabRun,
    LessonOpened,
    PredictionMade,
    SectionReached,
    SolutionShown,
)
from tutor.journal.store import Journal, JournalError

ONE_OF_EACH: tuple[AnyEvent, ...] = (
    LessonOpened("request"),
    SectionReached("request", "Six steps — “named”\n"),
    PredictionMade("request", "calls", "41 passes", "40 passes", correct=False),
    LabRun("request", "request", 12),
    ExerciseChecked("request", "request", passed=False, failed_checks=("stop strings",)),
    HintShown("request", 0),
    SolutionShown("request"),
    ExerciseReset("request"),
)


def _filled(folder: Path) -> Journal:
    journal = Journal(folder)
    for event in ONE_OF_EACH:
        journal.append(event)
    return journal


def test_every_event_comes_back_as_it_was(tmp_path: Path) -> None:
    journal = _filled(tmp_path / "not" / "there" / "yet")
    contents = journal.read()
    assert contents.events == ONE_OF_EACH
    assert contents.warnings == ()
    assert Journal(journal.folder).read() == contents


def test_one_json_object_a_line_with_the_schema_first(tmp_path: Path) -> None:
    lines = _filled(tmp_path).path.read_text().splitlines()
    assert json.loads(lines[0]) == {"journal": "inference-tutor", "schema": 1}
    events = [json.loads(line) for line in lines[1:]]
    assert [event["type"] for event in events] == [type(event).__name__ for event in ONE_OF_EACH]


def test_events_have_ids_and_times_of_their_own() -> None:
    first, second = LessonOpened("a"), LessonOpened("a")
    assert first.id != second.id
    assert 1.6e9 < first.time <= second.time


def test_no_journal_yet(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "nothing")
    assert journal.read().events == ()
    assert not journal.folder.exists()  # reading creates nothing


def test_the_default_is_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTOR_DATA", str(tmp_path))
    assert Journal().path == tmp_path / "journal.jsonl"


def test_a_line_cut_off_at_any_byte(tmp_path: Path) -> None:
    """Whatever part of the last line survived, the others are read and later ones are added whole."""
    whole = _filled(tmp_path).path.read_bytes()
    last = whole[: whole.rindex(b"\n", 0, -1) + 1]
    after = LessonOpened("later"), LessonOpened("even later")
    for size in range(len(last), len(whole)):
        journal = Journal(tmp_path / str(size))
        journal.folder.mkdir()
        journal.path.write_bytes(whole[:size])
        before = journal.read()
        kept = ONE_OF_EACH if size == len(whole) - 1 else ONE_OF_EACH[:-1]  # only the newline is missing
        torn = len(last) < size < len(whole) - 1
        assert before.events == kept
        assert len(before.warnings) == torn
        for event in after:
            journal.append(event)
        contents = journal.read()
        assert contents.events == (*kept, *after)
        assert len(contents.warnings) == torn
        assert not torn or "Line 9 of" in contents.warnings[0]


def test_a_first_write_cut_off_at_any_byte(tmp_path: Path) -> None:
    """Not even the header survived, so nothing was ever acknowledged: the journal starts over."""
    header = _filled(tmp_path).path.read_bytes().partition(b"\n")[0]
    for size in range(len(header) + 1):
        journal = Journal(tmp_path / f"h{size}")
        journal.folder.mkdir()
        journal.path.write_bytes(header[:size])
        assert journal.read().events == ()
        event = LessonOpened("a")
        journal.append(event)
        contents = journal.read()
        assert contents.events == (event,)
        assert contents.warnings == ()


def test_zeros_after_a_power_cut(tmp_path: Path) -> None:
    journal = _filled(tmp_path)
    with journal.path.open("ab") as file:
        file.write(bytes(100))
    event = LessonOpened("a")
    journal.append(event)
    contents = journal.read()
    assert contents.events == (*ONE_OF_EACH, event)
    assert len(contents.warnings) == 1


def test_a_damaged_line_in_the_middle(tmp_path: Path) -> None:
    journal = _filled(tmp_path)
    lines = journal.path.read_bytes().split(b"\n")
    lines[3] = b'{"type":"PredictionMade","lesson":'
    lines[5] = b"\xff\xfe"
    lines[6] = b'{"type":"Unheard","x":1}'
    journal.path.write_bytes(b"\n".join(lines))
    contents = journal.read()
    assert len(contents.events) == len(ONE_OF_EACH) - 3
    assert [warning.split(" of ")[0] for warning in contents.warnings] == ["Line 4", "Line 6", "Line 7"]


@pytest.mark.parametrize("use", ["read", "append"])
def test_a_newer_schema_is_left_alone(tmp_path: Path, use: str) -> None:
    journal = Journal(tmp_path)
    text = '{"journal":"inference-tutor","schema":2,"more":true}\n{"type":"Future"}\n'
    journal.path.write_text(text)
    with pytest.raises(JournalError, match=r"newer tutor \(schema 2; this one knows 1\).*pip install -U"):
        journal.read() if use == "read" else journal.append(LessonOpened("a"))
    assert journal.path.read_text() == text


@pytest.mark.parametrize("text", ["my shopping list\nmilk\n", '{"journal":"other","schema":1}\n', "x"])
def test_a_file_of_someone_else_is_left_alone(tmp_path: Path, text: str) -> None:
    journal = Journal(tmp_path)
    journal.path.write_text(text)
    with pytest.raises(JournalError, match="is not a journal of this tutor"):
        journal.append(LessonOpened("a"))
    assert journal.path.read_text() == text


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(JournalError, match=r"cannot be written: .*set TUTOR_DATA"):
        Journal(tmp_path / "data").append(LessonOpened("a"))


def test_a_folder_in_the_files_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.path.mkdir()
    with pytest.raises(JournalError, match="cannot be read: Is a directory"):
        journal.read()


READ_ONLY = """
import os, sys, filelock
from pathlib import Path
from tutor.journal.events import LessonOpened
from tutor.journal.store import Journal, JournalError
journal = Journal(Path(sys.argv[1]))
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)  # the superuser may write anywhere
print(len(journal.read().events), len(journal.read().warnings))
try:
    journal.append(LessonOpened("a"))
except JournalError as error:
    print(error)
"""


def test_a_read_only_folder_can_be_read() -> None:
    """Not below tmp_path: pytest closes that folder to other users."""
    root = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        journal = _filled(folder)
        with journal.path.open("ab") as file:
            file.write(b'{"type":')
        (folder / "journal.lock").unlink(missing_ok=True)
        Path(name).chmod(0o755)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(folder)], capture_output=True, text=True, cwd=root
        )
        folder.chmod(0o755)
    assert done.stderr == ""
    counts, message = done.stdout.splitlines()
    assert counts == "8 1"
    assert "cannot be written: Permission denied." in message
    assert "set TUTOR_DATA to another folder" in message
