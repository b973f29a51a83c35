from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyte
import pytest
from click.testing import Result

from tutor.journal.events import ExerciseChecked, LessonOpened
from tutor.journal.store import Journal

Run = Callable[..., Result]
Tutor = Callable[..., subprocess.CompletedProcess[bytes]]

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def _rows(output: str) -> dict[str, str]:
    """Lesson id -> its line."""
    found = {}
    for line in output.splitlines():
        match = re.search(r"\b(root|gap|leaf|far|twin) +The", line)
        if match:
            found[match.group(1)] = line
    return found


def test_lessons_are_grouped_by_stage_with_their_state(run: Run) -> None:
    result = run("list")
    assert result.exit_code == 0
    assert result.stderr == ""
    stages = re.split(r"^Stage (\d)$", result.stdout, flags=re.MULTILINE)
    assert stages[1::2] == ["1", "2", "3", "4"]
    assert list(_rows(stages[4])) == ["gap", "twin"]
    rows = _rows(result.stdout)
    assert rows["root"].split("  ")[1] == "◆ ready"
    assert "· not written yet" in rows["gap"]
    assert "· locked" in rows["leaf"]
    assert "(needs root)" in rows["leaf"]
    assert "(needs root, leaf +1)" in rows["far"] or "(needs root, twin +1)" in rows["far"]
    assert "Next: tutor lesson root" in result.stdout


def test_states_follow_the_journal(run: Run, journal: Journal) -> None:
    journal.append(LessonOpened("root"))
    assert "◇ in progress" in _rows(run("list").stdout)["root"]
    journal.append(ExerciseChecked("root", "root", passed=True))
    output = run("list").stdout
    rows = _rows(output)
    assert "✓ done" in rows["root"]
    assert "◆ ready" in rows["leaf"]  # its other need is not written and does not block
    assert "· not written yet" in rows["gap"]
    assert "1 of 5 lessons done, 4 written so far. Next: tutor lesson twin" in output


def test_list_journals_nothing(run: Run, journal: Journal) -> None:
    run("list")
    run("list", "--json")
    assert not journal.folder.exists()


def test_json(run: Run, journal: Journal) -> None:
    journal.append(ExerciseChecked("root", "root", passed=True))
    data = json.loads(run("list", "--json").stdout)
    assert data["summary"] == {"lessons": 5, "written": 4, "done": 1, "next": "twin"}
    lessons = {lesson["id"]: lesson for lesson in data["lessons"]}
    assert lessons["far"]["stage"] == 4
    assert lessons["far"]["status"] == "locked"
    assert lessons["far"]["missing"] == ["twin", "leaf"]
    assert lessons["leaf"]["open_needs"] == ["gap"]
    assert lessons["root"]["unlocks"] == ["gap", "leaf", "far", "twin"]
    assert not lessons["gap"]["written"]


def test_ascii(run: Run) -> None:
    output = run("--ascii", "list").stdout
    assert output.isascii()
    assert "> ready" in output
    assert ". locked" in output


def test_narrow_screens_put_the_needs_below(run: Run) -> None:
    wide, narrow = run("list", COLUMNS="120").stdout, run("list", COLUMNS="50").stdout
    assert max(len(line) for line in narrow.splitlines()) <= 50
    assert re.search(r"The far of it \(needs \w+, \w+ \+1\)$", wide, re.MULTILINE)
    assert re.search(r"The far of it\n +\(needs \w+, \w+ \+1\)$", narrow, re.MULTILINE)


def test_a_broken_course_is_one_sentence(run: Run, content: Path) -> None:
    (content / "02-gap" / "lesson.toml").write_text("id = = 3\n")
    result = run("list")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("content/02-gap/lesson.toml:1: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_newer_journal_is_one_sentence(run: Run, journal: Journal) -> None:
    journal.folder.mkdir()
    journal.path.write_text('{"journal":"inference-tutor","schema":9}\n')
    result = run("list")
    assert result.exit_code == 3
    assert "newer tutor" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_cut_off_journal_line_is_reported_and_the_list_shown(run: Run, journal: Journal) -> None:
    journal.append(ExerciseChecked("root", "root", passed=True))
    with journal.path.open("ab") as file:
        file.write(b'{"type":"Less')
    result = run("list")
    assert result.exit_code == 0
    assert "✓ done" in result.stdout
    assert "Line 3 of" in result.stderr


def test_an_unknown_option_is_wrong_usage(run: Run) -> None:
    assert run("list", "--jsno").exit_code == 2


# --- the shipped course in processes of their own ------------------------------------------------


def test_colours_on_a_terminal_unless_no_color(on_terminal: Callable[..., str], tmp_path: Path) -> None:
    Journal(tmp_path).append(ExerciseChecked("request", "request", passed=True))
    assert COLOUR.search(on_terminal("list", data=tmp_path))
    calm = on_terminal("list", data=tmp_path, NO_COLOR="1")
    assert not COLOUR.search(calm)
    assert "✓ done" in calm


def test_no_line_wraps_on_80_columns(on_terminal: Callable[..., str], tmp_path: Path) -> None:
    output = on_terminal("list", data=tmp_path)
    screen = pyte.Screen(80, 120)
    pyte.Stream(screen).feed(output)
    lines = [line.rstrip() for line in screen.display]
    assert sum(bool(re.match(r"  \S ", line)) for line in lines) == 31
    others = [line for line in lines if line and not line.startswith("  ")]
    assert all(re.match(r"Stage \d$|\d+ of 31 lessons done", line) for line in others)


def test_a_pipe_gets_plain_lines(tutor: Tutor, tmp_path: Path) -> None:
    done = tutor("list", data=tmp_path)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""
    assert len(re.findall(rb"^  \S", done.stdout, re.MULTILINE)) == 31


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_an_encoding_without_glyphs_gets_ascii(tutor: Tutor, tmp_path: Path, encoding: str) -> None:
    done = tutor("list", data=tmp_path, PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"> ready" in done.stdout
