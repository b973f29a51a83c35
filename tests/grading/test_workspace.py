"""The learner's files, the exercise loader and the reference cache."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tutor.grading.errors import ExerciseError, UnknownExercise, WorkspaceError
from tutor.grading.exercise import Exercise, exercise_ids, find_exercise, load_exercise
from tutor.grading.references import ExerciseReferences, Memory
from tutor.grading.workspace import Workspace, header


@pytest.fixture
def exercise(exercises: Path) -> Exercise:
    return load_exercise(exercises / "sum")


def test_start_never_overwrites(exercise: Exercise, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "mine")
    path, made = workspace.start(exercise)
    assert made and path.name == "total.py"
    assert path.read_text().startswith("# inference-tutor: exercise sum, version 1\n")
    assert workspace.version(exercise) == 1
    path.write_text("my work")
    assert workspace.start(exercise) == (path, False)
    assert workspace.read(exercise) == "my work" and workspace.version(exercise) is None


def test_reset_keeps_every_backup(exercise: Exercise, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    path, _ = workspace.start(exercise)
    backups = []
    for text in ("one", "two", "three"):
        workspace.write(exercise, text)
        _, backup = workspace.reset(exercise)
        assert backup is not None and re.fullmatch(r"total\.py\.\d{8}-\d{6}(-\d+)?\.bak", backup.name)
        backups.append(backup)
    assert [backup.read_text() for backup in backups] == ["one", "two", "three"]
    assert path.read_text().startswith(header(exercise))


def test_reset_without_a_file_just_starts(exercise: Exercise, tmp_path: Path) -> None:
    path, backup = Workspace(tmp_path).reset(exercise)
    assert backup is None and path.is_file()


def test_a_folder_in_the_way_is_a_sentence(exercise: Exercise, tmp_path: Path) -> None:
    (tmp_path / "total.py").mkdir()
    with pytest.raises(WorkspaceError, match="is a folder"):
        Workspace(tmp_path).start(exercise)


def test_a_folder_that_cannot_be_made_is_a_sentence(exercise: Exercise, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="choose another folder with --workspace"):
        Workspace(tmp_path / "file" / "sub").start(exercise)
    with pytest.raises(WorkspaceError, match="Cannot write"):
        Workspace(tmp_path / "file").write(exercise, "text")


def test_write_keeps_the_mode_and_leaves_no_other_file(exercise: Exercise, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    path, _ = workspace.start(exercise)
    os.chmod(path, 0o600)
    workspace.write(exercise, "é\n")
    assert path.read_bytes() == b"\xc3\xa9\n" and path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in tmp_path.iterdir()] == ["total.py"]


def raised(exercise: Exercise, version: int, changes: dict[int, str]) -> Exercise:
    return msgspec.structs.replace(exercise, version=version, changes=changes)


def test_an_update_keeps_the_file_and_says_what_changed(exercise: Exercise, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    newer = raised(exercise, 3, {2: "Floats count.", 3: "Empty lists count."})
    assert workspace.news(newer) == ()
    path, _ = workspace.start(exercise)
    mine = path.read_text() + "my work\n"
    path.write_text(mine)
    assert workspace.start(newer) == (path, False) and path.read_text() == mine
    assert workspace.news(exercise) == ()
    assert workspace.news(newer) == (
        "Your file was begun for version 1; the exercise is at version 3 now.",
        "Version 2: Floats count.",
        "Version 3: Empty lists count.",
        f"Your file is kept. When it does that, let its header say: {header(newer).strip()}",
    )
    path.write_text(mine.replace("version 1", "version 2"))
    assert workspace.news(newer)[1:-1] == ("Version 3: Empty lists count.",)
    path.write_text(mine.replace("version 1", "version 3"))
    assert workspace.news(newer) == ()
    path.write_text("no header")
    assert workspace.news(newer) == ()


def test_a_file_of_another_exercise_is_not_taken_for_ones_own(exercise: Exercise, tmp_path: Path) -> None:
    (tmp_path / exercise.file).write_text("# inference-tutor: exercise kv-cache, version 1\n")
    with pytest.raises(WorkspaceError, match="belongs to the exercise 'kv-cache'; choose another folder"):
        Workspace(tmp_path).start(exercise)
    (tmp_path / exercise.file).write_text("# inference-tutor: exercise long-gone, version 1\n")
    assert Workspace(tmp_path).start(exercise) == (tmp_path / exercise.file, False)


BROKEN = {
    'version = "one"': "version",
    "colour = 3": "colour",
    "version = 0": "version starts at 1",
    'file = "../x.py"': "is not a plain name",
    'entry = ["a b"]': "no Python name",
    'id = "other"': "is not the folder's name",
    "limits = { call_seconds = 0.0 }": "a limit is not positive",
    "title = ": "Invalid value",
    'changes = { 2 = "x" }': "changes names version 2, the exercise is at 1",
}


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_exercise_names_file_and_reason(exercises: Path, tmp_path: Path, line: str) -> None:
    folder = tmp_path / "sum"
    folder.mkdir()
    key = line.split()[0]
    good = (exercises / "sum" / "exercise.toml").read_text().splitlines()
    kept = [text for text in good if not text.startswith(f"{key} ")]
    (folder / "exercise.toml").write_text("\n".join([*kept, line]))
    with pytest.raises(ExerciseError, match=re.escape(BROKEN[line])) as caught:
        load_exercise(folder)
    assert "exercises/sum/exercise.toml" in str(caught.value)


def test_ids_suggestions_and_renames(exercises: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownExercise, match="Did you mean sum"):
        find_exercise("summ", exercises)
    with pytest.raises(UnknownExercise, match="There are: none"):
        find_exercise("sum", tmp_path)
    (tmp_path / "sum").symlink_to(exercises / "sum")
    (tmp_path / "renames.toml").write_text('add = "sum"\n')
    assert find_exercise("add", tmp_path).id == "sum"


def test_exercises_of_packs_are_found_and_clashes_named(
    exercises: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, other = tmp_path / "pack", tmp_path / "other"
    for folder, name in ((pack, "sum"), (other, "calls"), (other, "sum")):
        (folder / "exercises").mkdir(parents=True, exist_ok=True)
        (folder / "exercises" / name).symlink_to(exercises / name)
    monkeypatch.setenv("TUTOR_PACKS", str(pack))
    assert {"sum", "kv-cache"} <= set(exercise_ids()) and "calls" not in exercise_ids()
    assert find_exercise("sum").folder == pack / "exercises" / "sum"
    monkeypatch.setenv("TUTOR_PACKS", f"{pack}{os.pathsep}{other}")
    with pytest.raises(ExerciseError, match=r"The exercise 'sum' is in .*pack/exercises and in .*other/"):
        find_exercise("calls")
    monkeypatch.setenv("TUTOR_PACKS", str(tmp_path / "nothing"))
    with pytest.raises(ExerciseError, match="is no lesson pack"):
        exercise_ids()


class Maker:
    """Counts how often a value had to be made."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        return self.value


def references(exercise: Exercise, seed: int = 1, digest: str = "d" * 64) -> ExerciseReferences:
    return ExerciseReferences(exercise, seed, lambda: digest, Memory())


VALUE = {
    "ids": [1, 2],
    "rows": [np.arange(6, dtype=np.float32).reshape(2, 3)],
    "none": None,
    "pair": (1, b"x"),
}


def test_a_reference_is_made_once(exercise: Exercise, own_folders: Path) -> None:
    make = Maker(VALUE)
    for _ in range(3):
        got = references(exercise).get("key", make)  # a fresh memory each time: read from disk
        assert got["pair"] == (1, b"x") and np.array_equal(got["rows"][0], VALUE["rows"][0])
        assert not got["rows"][0].flags.writeable
    assert make.times == 1


def test_a_reference_depends_on_seed_model_version_and_key(exercise: Exercise, own_folders: Path) -> None:
    make = Maker(1)
    references(exercise).get("key", make)
    references(exercise, seed=2).get("key", make)
    references(exercise, digest="e" * 64).get("key", make)
    references(msgspec.structs.replace(exercise, version=2)).get("key", make)
    references(exercise).get("other", make)
    assert make.times == 5
    references(exercise).get("key", make)
    assert make.times == 5


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 100, None])
def test_a_damaged_file_is_made_again(exercise: Exercise, own_folders: Path, damage: bytes | None) -> None:
    make = Maker(VALUE)
    references(exercise).get("key", make)
    (path,) = (own_folders / "cache").rglob("*.bin")
    path.write_bytes(path.read_bytes()[:-3] if damage is None else damage)
    assert references(exercise).get("key", make)["ids"] == [1, 2]
    assert make.times == 2
    references(exercise).get("key", make)
    assert make.times == 2
    assert not list((own_folders / "cache").rglob(".new-*"))


def test_a_cache_that_cannot_be_written_is_no_error(exercise: Exercise, own_folders: Path) -> None:
    (own_folders / "cache").write_text("a file where the folder should be")
    assert references(exercise).get("key", Maker(3)) == 3


def test_memory_drops_the_oldest(exercise: Exercise, own_folders: Path) -> None:
    memory = Memory(limit=1000)
    for name in "abc":
        memory.put(Path(name), name, 400)
    assert memory.get(Path("a")) is None and memory.get(Path("c")) == ("c", 400)
