from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tutor.journal.events import LessonOpened
from tutor.journal.store import Journal

Run = Callable[..., Result]
Tutor = Callable[..., subprocess.CompletedProcess[bytes]]


def test_the_text_with_its_numbers(run: Run) -> None:
    result = run("lesson", "leaf")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith("The leaf of it\n══════════════\n")
    assert "Stage 3, about 20 minutes. Needs root, gap." in result.stdout
    assert "A block of 16 tokens takes 360 KiB → small." in result.stdout
    assert "│ok│" in result.stdout
    assert "\x1b" not in result.stdout
    titles = [line for line in result.stdout.splitlines() if line in ("Blocks", "Sources", "Recap")]
    assert titles == ["Blocks", "Sources", "Recap"]


@pytest.mark.parametrize("name", ["leaf", "LEAF", "The old leaf", "the leaf of it"])
def test_names_that_open_a_lesson(run: Run, journal: Journal, name: str) -> None:
    result = run("lesson", name)
    assert result.exit_code == 0
    events = journal.read().events
    assert [(type(event), event.lesson) for event in events] == [(LessonOpened, "leaf")]


def test_a_typo_gets_the_nearest_id(run: Run, journal: Journal) -> None:
    result = run("lesson", "lefa")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Did you mean leaf?" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not journal.folder.exists()


def test_a_lesson_that_is_not_written(run: Run, journal: Journal) -> None:
    result = run("lesson", "gap")
    assert result.exit_code == 3
    assert "not written yet" in result.stderr
    assert not journal.folder.exists()


def test_a_broken_lesson(run: Run, content: Path, journal: Journal) -> None:
    (content / "01-root" / "lesson.md").write_text("## A\n{{ nope }}\n## Recap\n")
    result = run("lesson", "root")
    assert result.exit_code == 3
    assert "content/01-root/lesson.md:2: " in result.stderr
    assert not journal.folder.exists()


def test_no_id_is_wrong_usage(run: Run) -> None:
    assert run("lesson").exit_code == 2


def test_json(run: Run, journal: Journal) -> None:
    result = run("lesson", "leaf", "--json")
    data = json.loads(result.stdout)
    assert data["id"] == "leaf"
    assert data["objectives"] == ["Know it."]
    assert [section["title"] for section in data["sections"]] == ["Blocks", "Sources", "Recap"]
    assert "360 KiB" in data["markdown"]
    assert len(journal.read().events) == 1


def test_ascii(run: Run) -> None:
    output = run("--ascii", "lesson", "leaf").stdout
    assert output.isascii()
    assert "360 KiB > small" in output
    assert "+--+" in output
    assert "|ok|" in output


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_text_fits_the_width(run: Run, content: Path, columns: int) -> None:
    (content / "01-root" / "lesson.md").write_text(f"## A\n\n{'some words ' * 60}\n\n## Recap\n")
    lines = run("lesson", "root", COLUMNS=str(columns)).stdout.splitlines()
    longest = max(len(line) for line in lines)
    assert columns - 12 < longest <= columns


def test_lines_stay_readable_on_a_wide_screen(run: Run, content: Path) -> None:
    (content / "01-root" / "lesson.md").write_text(f"## A\n\n{'some words ' * 60}\n\n## Recap\n")
    assert max(len(line) for line in run("lesson", "root", COLUMNS="200").stdout.splitlines()) <= 88


def test_the_text_is_shown_even_if_the_visit_cannot_be_noted(run: Run, journal: Journal) -> None:
    journal.folder.write_text("a file where the folder should be")
    result = run("lesson", "leaf")
    assert result.exit_code == 0
    assert "360 KiB" in result.stdout
    assert result.stderr.startswith("This visit was not noted. The journal ")


def test_letters_that_the_encoding_lacks(tutor: Tutor, tmp_path: Path) -> None:
    written = [path.parent.name[3:] for path in Path(__file__).parents[2].glob("content/*/lesson.md")]
    assert written
    for id in written:
        done = tutor("lesson", id, data=tmp_path, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()


def test_a_terminal_gets_styles_and_a_pipe_does_not(
    on_terminal: Callable[..., str], tutor: Tutor, tmp_path: Path
) -> None:
    shown = on_terminal("lesson", "request", data=tmp_path)
    assert re.search(r"\x1b\[[0-9;]*1[;m]", shown)  # bold headings
    piped = tutor("lesson", "request", data=tmp_path)
    assert b"\x1b" not in piped.stdout
    assert len(Journal(tmp_path).read().events) == 2
