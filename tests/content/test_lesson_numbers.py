"""The facts in measured.toml are what the bundled model says now, and the comparison notices a change."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tutor.llama.reference import ReferenceModel
from tutor.resources import content_dir

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "lesson_numbers.py"
MEASURED = sorted(path.parent for path in content_dir().glob("*/measure.py"))


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lesson_numbers", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lesson_numbers = load_script()


@pytest.fixture(scope="module")
def model() -> ReferenceModel:
    return ReferenceModel.load()


def test_lessons_are_found() -> None:
    assert {"01-request", "02-tokens", "03-forward"} <= {folder.name for folder in MEASURED}


@pytest.mark.parametrize("folder", MEASURED, ids=lambda folder: folder.name)
def test_measured_facts_are_current(folder: Path, model: ReferenceModel) -> None:
    assert (folder / "measured.toml").exists()
    assert (
        lesson_numbers.differences(lesson_numbers.stored(folder), lesson_numbers.measure(folder, model)) == []
    )


def test_every_written_fact_survives_the_file_format() -> None:
    facts = {"text": 'a "quoted" \\ é \n\t\x7f line', "n": -3, "x": 0.125, "many": ["a", "b"], "odd key": []}
    assert tomllib.loads(lesson_numbers.to_toml(facts)) == facts


def test_values_that_toml_cannot_hold_are_refused() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        lesson_numbers.to_toml({"x": None})
    with pytest.raises(TypeError, match="float"):
        lesson_numbers.to_toml({"x": float("nan")})


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ({"a": 1}, {"a": 1}, 0),
        ({"a": 1}, {"a": 2}, 1),
        ({"a": 1}, {}, 1),
        ({}, {"a": 1}, 1),
        ({"a": "1"}, {"a": 1}, 1),
        ({"a": 1.0}, {"a": 1.04}, 0),
        ({"a": 1.0}, {"a": 1.06}, 1),
        ({"a": [1, 2]}, {"a": [1, 3]}, 1),
        ({"a": [1, 2]}, {"a": [1]}, 1),
    ],
)
def test_differences(old: dict[str, object], new: dict[str, object], count: int) -> None:
    assert len(lesson_numbers.differences(old, new)) == count


def test_check_mode_reports_a_changed_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "01-demo"
    folder.mkdir()
    source = "def measure(model):\n    return {'tokens': len(model.tokenize('hi'))}\n"
    (folder / "measure.py").write_text(source)
    monkeypatch.setattr(lesson_numbers, "content_dir", lambda: tmp_path)
    assert lesson_numbers.main(["--check"]) == 1
    assert "tokens: is measured, but not in measured.toml" in capsys.readouterr().out
    assert not (folder / "measured.toml").exists()
    assert lesson_numbers.main([]) == 0
    assert lesson_numbers.main(["--check", "demo"]) == 0
    (folder / "measured.toml").write_text("tokens = 99\n")
    assert lesson_numbers.main(["--check"]) == 1
    assert "measured.toml says 99" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        lesson_numbers.main(["nothing"])
    assert stop.value.code == 2
