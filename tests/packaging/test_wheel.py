"""The wheel carries lessons and exercises, and an installed tutor finds them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel, built from this checkout and unpacked as pip would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("inference_tutor-*.whl")
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    yield target


def tutor(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed), "TUTOR_DATA": str(installed / "data")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "tutor", *arguments],
        cwd=installed.parent, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_lesson_and_exercise_is_in_the_wheel(installed: Path) -> None:
    for name in ("content", "exercises"):
        ours = {p.relative_to(ROOT / name) for p in (ROOT / name).rglob("*") if p.is_file()}
        shipped = installed / "tutor" / "_data" / name
        theirs = {p.relative_to(shipped) for p in shipped.rglob("*") if p.is_file()}
        assert {p for p in ours if "__pycache__" not in p.parts} == theirs


def test_the_installed_tutor_finds_them(installed: Path) -> None:
    code = "import tutor.resources as r; print(r.content_dir()); print(r.exercises_dir())"
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(Path(line).is_relative_to(installed) for line in done.stdout.splitlines())
    listed = tutor(installed, "list")
    assert listed.returncode == 0 and "Anatomy of an inference request" in listed.stdout
    read = tutor(installed, "lesson", "kv-math")
    assert read.returncode == 0 and "MiB" in read.stdout


def test_the_installed_tutor_makes_lessons(installed: Path, tmp_path: Path) -> None:
    """The skeleton's files are in the wheel."""
    made = tutor(installed, "author", "new", "mine", "--pack", str(tmp_path))
    assert made.returncode == 0, made.stderr
    ours = {p.relative_to(ROOT) for p in (ROOT / "tutor" / "grading" / "skeleton").rglob("*.txt")}
    assert len(ours) == sum(p.is_file() for p in tmp_path.rglob("*")) > 8


def test_the_styles_are_in_the_wheel(installed: Path) -> None:
    ours = {p.relative_to(ROOT) for p in (ROOT / "tutor").rglob("*.tcss")}
    assert ours and all((installed / path).is_file() for path in ours)
