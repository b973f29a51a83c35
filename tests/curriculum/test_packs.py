"""Lesson packs in folders and installed packages: they join the course, and clashes are one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tutor.curriculum.errors import CourseError
from tutor.curriculum.loader import load_course
from tutor.curriculum.packs import add_packs, packs
from tutor.resources import content_dir

LESSON = 'id = "{id}"\ntitle = "{title}"\nline = "x"\nneeds = {needs}\nminutes = 5\nobjectives = ["x"]\n'


def make_pack(root: Path, *lessons: str, title: str = "", needs: str = "[]") -> Path:
    """A pack with lessons such as `01-mine`; the title is the id's unless given."""
    for name in lessons:
        folder = root / "content" / name
        folder.mkdir(parents=True)
        id = name[3:]
        (folder / "lesson.toml").write_text(LESSON.format(id=id, title=title or f"About {id}", needs=needs))
    return root


@pytest.fixture(autouse=True)
def no_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTOR_PACKS", "")


def use(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setenv("TUTOR_PACKS", os.pathsep.join(map(str, folders)))


def test_lessons_of_packs_join_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_course()
    one = make_pack(tmp_path / "one", "01-mine", needs='["kv-cache"]')
    two = make_pack(tmp_path / "two", "01-yours", "02-ours", needs='["mine"]')
    use(monkeypatch, one, two)
    course = load_course()
    assert [lesson.id for lesson in course] == [*(x.id for x in shipped), "mine", "yours", "ours"]
    assert course.stage("mine") == course.stage("kv-cache") + 1
    assert course.unlocks("mine") == ("yours", "ours")
    assert [course[id].number for id in ("mine", "yours", "ours")] == [len(shipped) + n for n in (1, 2, 3)]
    assert "mine" in course.unlocks("kv-cache") and course.path_to("ours")[-2:] == ("mine", "ours")


def test_a_folder_that_is_asked_for_explicitly_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, make_pack(tmp_path / "one", "01-mine"))
    assert "mine" not in load_course(content_dir())


@pytest.mark.parametrize(
    ("lesson", "title", "name"), [("01-tokens", "", "tokens"), ("01-mine", "KV cache size math", "KV cache")]
)
def test_a_name_that_is_taken_names_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lesson: str, title: str, name: str
) -> None:
    pack = make_pack(tmp_path / "one", lesson, title=title)
    use(monkeypatch, pack)
    with pytest.raises(CourseError, match=f"the name '{name}.*is already taken by lesson") as caught:
        load_course()
    assert str(content_dir()) in str(caught.value) and str(pack / "content") in str(caught.value)


def test_a_number_is_a_packs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_pack(tmp_path / "one", "07-mine", "07-yours"))
    with pytest.raises(CourseError, match="number 07 is taken by 'mine'"):
        load_course()


def test_what_is_no_pack_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path / "nothing")
    with pytest.raises(CourseError, match=r"nothing is no lesson pack: a pack is a folder with content/ or"):
        load_course()


def test_a_pack_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = make_pack(tmp_path / "one", "01-mine")
    other = make_pack(tmp_path / "two", "01-yours")
    use(monkeypatch, pack, other)
    add_packs([other, other])
    assert [found.folder for found in packs()] == [other.resolve(), pack.resolve()]


# --- installed packages -------------------------------------------------------------------------

SHOW = """
import sys
from tutor.curriculum.loader import load_course
print(*(lesson.id for lesson in load_course()))
print("importlib.metadata" in sys.modules)
"""


def run_with(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def install(site: Path, value: str) -> None:
    """What an installer leaves: the metadata with an entry point."""
    info = site / "extra_lessons-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-lessons\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[inference_tutor.lessons]\nextra = {value}\n")


def test_an_installed_pack_is_found_without_importing_it(tmp_path: Path) -> None:
    install(tmp_path, "extra_lessons")
    make_pack(tmp_path / "extra_lessons", "01-mine", needs='["tokens"]')
    (tmp_path / "extra_lessons" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    done = run_with(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(" mine")


def test_without_packs_nothing_slow_is_imported(tmp_path: Path) -> None:
    done = run_with(tmp_path)
    assert done.stdout.splitlines()[1] == "False", done.stderr


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("gone", "the installed pack 'extra' (package gone) cannot be found; install it again or remove it."),
        ("extra_lessons", "(package extra_lessons) is no lesson pack"),
    ],
)
def test_a_broken_installed_pack_is_a_sentence(tmp_path: Path, value: str, sentence: str) -> None:
    install(tmp_path, value)
    (tmp_path / "extra_lessons").mkdir()
    (tmp_path / "extra_lessons" / "__init__.py").write_text("")
    done = run_with(tmp_path)
    assert done.returncode == 1 and sentence in done.stderr
