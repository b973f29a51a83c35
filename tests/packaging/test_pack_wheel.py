"""A lesson pack as a package, made as docs/authoring.md says: built, unpacked as pip would, then used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tutor.resources import content_dir

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "authoring.md"


def run(*arguments: str, cwd: Path, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m …`, with `site` as one more folder of installed packages."""
    environment = os.environ | {"TUTOR_DATA": str(cwd / "data"), "TUTOR_PACKS": ""}
    environment |= {"PYTHONPATH": str(site)} if site else {}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the pack's wheel was unpacked."""
    project = tmp_path_factory.mktemp("project")
    block = re.search(r"```toml\n(\[build-system\].*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (project / "pyproject.toml").write_text(block[1])
    made = run("tutor", "author", "new", "mine", "--pack", "my_pack", "--needs", "tokens", cwd=project)
    assert made.returncode == 0, made.stderr
    (project / "my_pack" / "__init__.py").write_text("")
    built = run("hatchling", "build", "-t", "wheel", "-d", "dist", cwd=project)
    assert built.returncode == 0, built.stderr
    (wheel,) = (project / "dist").glob("my_pack-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(project / "site")
    return project / "site"


def test_its_lesson_and_exercise_are_there(site: Path, tmp_path: Path) -> None:
    listed = run("tutor", "list", cwd=tmp_path, site=site)
    assert listed.returncode == 0, listed.stderr
    (line,) = [line for line in listed.stdout.splitlines() if " mine " in line]
    shipped = len(list(content_dir().glob("*/lesson.toml")))
    assert "needs tokens" in line and f"of {shipped + 1} lessons done" in listed.stdout
    read = run("tutor", "lesson", "mine", cwd=tmp_path, site=site)
    assert "2 seconds" in read.stdout and "{{" not in read.stdout
    solution = site / "my_pack" / "exercises" / "mine" / "solution.py"
    checked = run("tutor", "check", "mine", "--file", str(solution), cwd=tmp_path, site=site)
    assert checked.returncode == 0 and "Passed: 2 of 2 checks" in checked.stdout


def test_without_it_they_are_not(tmp_path: Path) -> None:
    assert run("tutor", "lesson", "mine", cwd=tmp_path).returncode == 2
