"""CONTRIBUTING.md, followed literally: the commands it names make a lesson with a grader that holds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tutor.curriculum.loader import load_course
from tutor.grading.client import run_check
from tutor.grading.errors import AuthorError
from tutor.grading.skeleton import make_skeleton

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def commands() -> list[list[str]]:
    """The lines of the first shell block below the heading, as argument lists."""
    section = GUIDE.read_text(encoding="utf-8").partition("## Adding a lesson and its exercise")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [shlex.split(line) for line in block[1].splitlines()]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tutor", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder in which the commands ran, and what each printed, by its second word."""
    folder = tmp_path_factory.mktemp("author")
    printed = {}
    for program, *arguments in commands():
        assert program == "tutor"
        done = run(folder, *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        printed[" ".join(word for word in arguments[:2] if word != "--pack")] = done.stdout
    return folder, printed


def test_the_commands_of_the_guide_work(walked: tuple[Path, dict[str, str]]) -> None:
    folder, printed = walked
    assert set(printed) == {"author new", "author lint", "author mutate", "my-pack"}
    assert printed["author lint"] == "lesson graph: ok\nlesson token-rate: ok\ntoken-rate: ok\n"
    assert re.fullmatch(r"(\d+) mutations, \1 noticed, 0 survived\.\n", printed["author mutate"])
    assert "Difficulty 2 of 5." in " ".join(printed["my-pack"].split()), "the skeleton says how hard it is"
    assert "20.0" in printed["my-pack"] and "How fast is a server" in printed["my-pack"]
    made = {str(path.relative_to(folder / "my-pack")) for path in folder.rglob("*") if path.is_file()}
    assert {"content/01-token-rate/lesson.md", "exercises/token-rate/mutants/upside_down.py"} <= made


def test_a_learner_can_do_what_was_made(
    walked: tuple[Path, dict[str, str]], own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = walked
    pack = folder / "my-pack"
    begun = run(folder, "--pack", str(pack), "start", "token-rate")
    path = own_folders / "workspace" / "token_rate.py"
    assert begun.returncode == 0 and str(path) in begun.stdout
    path.write_text((pack / "exercises" / "token-rate" / "mutants" / "mean_of_speeds.py").read_text())
    failed = run(folder, "--pack", str(pack), "check", "token-rate")
    assert failed.returncode == 1 and "That is the mean of the speeds" in failed.stdout
    monkeypatch.setenv("TUTOR_PACKS", str(pack))  # the judge finds it by id, as the full screen asks for it
    assert run_check("token-rate", pack / "exercises" / "token-rate" / "solution.py").passed


def test_lint_of_a_pack_says_what_is_wrong(walked: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    made = run(tmp_path, "author", "new", "mine", "--pack", ".", "--needs", "kv-math")
    assert made.returncode == 0, made.stderr
    lesson, exercise = tmp_path / "content" / "01-mine", tmp_path / "exercises" / "mine"
    (lesson / "lab.toml").write_text('kind = "none"\ntitle = "x"\nphenomenon = "x"\nwatch = ["x"]\n')
    toml = exercise / "exercise.toml"
    toml.write_text(
        toml.read_text().replace('lesson = "mine"', 'lesson = "tokens"').replace("mine.py", "tokens.py")
    )
    (exercise / "equivalent.toml").write_text("")
    check = exercise / "check.py"
    check.write_text(check.read_text().partition('@check("no requests"')[0])
    found = run(tmp_path, "author", "lint", "--pack", ".")
    assert found.returncode == 1
    for sentence in (
        "lab.toml: There is no lab 'none'; there are",
        "exercise.toml: id 'mine' and lesson 'tokens': a lesson finds its exercise by its own id",
        "exercise.toml: file 'tokens.py' is that of the exercise 'tokens' already",
        "exercises/mine/equivalent.toml: Object missing required field `equivalent`",
        "mutants/no_requests.py: there is no check 'no requests'",
    ):
        assert sentence in found.stdout
    (exercise / "equivalent.toml").unlink()
    weak = run(tmp_path, "author", "mutate", "--pack", ".", "mine")
    assert weak.returncode == 1 and "no check notices it" in weak.stdout and "now = " in weak.stdout


@pytest.mark.parametrize(
    ("ident", "title", "needs", "sentence"),
    [
        ("Mine", "x", (), "'Mine' is no id"),
        ("mine", " ", (), "The title is empty"),
        ("mine", 'a "b"', (), "holds a quote"),
        ("tokens", "x", (), "The name 'tokens' is taken by the lesson 'tokens'"),
        ("mine", "kv cache SIZE math", (), "is taken by the lesson 'kv-math'"),
        ("mine", "x", ("nothing",), "There is no lesson 'nothing' to need"),
    ],
)
def test_what_cannot_be_made_is_a_sentence(
    tmp_path: Path, ident: str, title: str, needs: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(AuthorError, match=sentence):
        make_skeleton(tmp_path, ident, title, needs, load_course())
    assert list(tmp_path.iterdir()) == []


def test_numbers_go_on_and_nothing_is_overwritten(tmp_path: Path) -> None:
    course = load_course()
    for number, ident in enumerate(("class", "4-bit"), start=1):
        lesson, exercise = make_skeleton(tmp_path, ident, f"About {ident}", (), course)
        assert lesson.name == f"{number:02d}-{ident}"
        stem = {"class": "lesson_class", "4-bit": "lesson_4_bit"}[ident]
        assert f'file = "{stem}.py"' in (exercise / "exercise.toml").read_text()
    (exercise / "check.py").write_text("mine")
    with pytest.raises(AuthorError, match="is there already; nothing was changed"):
        make_skeleton(tmp_path, "4-bit", "About bits", (), course)
    assert (exercise / "check.py").read_text() == "mine"
