"""Lint and mutation run: they find what is wrong with an exercise, and nothing where nothing is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tutor.grading.errors import ExerciseError
from tutor.grading.exercise import load_exercise
from tutor.grading.lint import lint_exercises, signatures, static_problems
from tutor.grading.mutate import mutate_exercise, mutations


@pytest.fixture
def copy(exercises: Path, tmp_path: Path) -> Path:
    """A copy of the exercise `sum` that a test may break."""
    return Path(shutil.copytree(exercises / "sum", tmp_path / "sum"))


def problems(folder: Path) -> tuple[str, ...]:
    found: dict[str, tuple[str, ...]] = {}
    clean = lint_exercises([load_exercise(folder)], None, found.__setitem__)
    assert clean is not bool(found[folder.name])
    return found[folder.name]


def test_the_test_exercises_are_clean(exercises: Path) -> None:
    found: dict[str, tuple[str, ...]] = {}
    items = [load_exercise(exercises / name) for name in ("sum", "calls")]
    assert lint_exercises(items, None, found.__setitem__)
    assert found == {"sum": (), "calls": ()}


def test_lint_finds_what_only_running_shows(copy: Path) -> None:
    solution = (copy / "solution.py").read_text()
    (copy / "starter.py").write_text(solution)
    (copy / "mutants" / "skips_first.py").write_text(f"# fails: random lists\n# says: x\n{solution}")
    (copy / "mutants" / "skips_last.py").write_text("# fails: no such check\n# says: x\n" + solution)
    mutant = copy / "mutants" / "empty_is_none.py"
    mutant.write_text(mutant.read_text().replace("says: total", "says: You total"))
    (copy / "solution.py").write_text(solution.replace("+=", "-="))
    text = "\n".join(problems(copy))
    assert "starter.py: the verdict is pass, not fail" in text
    for seed in (1, 2, 3):
        assert f"solution.py, seed {seed}: fail (random lists:" in text
    assert "mutants/skips_first.py: passes 'random lists'; failed checks: none" in text
    assert "mutants/skips_last.py: there is no check 'no such check'" in text
    assert "mutants/empty_is_none.py: the message does not hold 'You total([]) is None" in text


def test_lint_finds_what_reading_shows(copy: Path) -> None:
    toml = copy / "exercise.toml"
    toml.write_text(toml.read_text().replace(', "Python\'s built-in sum does it."', ""))
    (copy / "notes.txt").write_text("")
    (copy / "mutants" / "data.bin").write_bytes(b"")
    (copy / "mutants" / "skips_last.py").write_text("def total(numbers): return 0\n")
    (copy / "mutants" / "skips_first.py").unlink()
    (copy / "starter.py").write_text("def total(numbers, start=0): ...\ndef helper(): ...\n")
    check = copy / "check.py"
    check.write_text("import llama_cpp\nfrom tutor.llama import model\n" + check.read_text())
    assert set(static_problems(load_exercise(copy))) == {
        "exercise.toml: 2 hints, at least 3 are needed",
        "mutants/: 2 mutants, at least 3 are needed",
        "stray file notes.txt",
        "stray file mutants/data.bin",
        "mutants/skips_last.py: the header needs the lines `# fails: CHECK` and `# says: PHRASE`",
        "total: starter.py has (numbers, start=0), solution.py has (numbers)",
        "helper is in starter.py but not in solution.py",
        "check.py imports llama_cpp; only tutor.grading.kit and numpy are meant for checks",
        "check.py imports tutor.llama; only tutor.grading.kit and numpy are meant for checks",
    }


def test_signatures_leave_out_annotations_and_private_names() -> None:
    source = (
        "class A:\n    def __init__(self, n: int = 3) -> None: ...\n    def _x(self): ...\n"
        "def f(a, /, b: str, *rest, c=1, **more): ...\ndef _g(): ...\n"
    )
    found = signatures(source)
    assert found == {"A": "class", "A.__init__": "(self, n=3)", "f": "(a, /, b, *rest, c=1, **more)"}


def test_mutations_of_every_kind() -> None:
    source = (
        'def f(a, b):\n    """Not touched: 1 < 2."""\n    if a < b:\n        a += 2\n    return a * 0.5\n'
    )
    found = [(m.line, m.kind, m.before, m.after) for m in mutations(source)]
    assert found == [
        (3, "deleted statement", "if a < b:", "pass"),
        (3, "comparison", "a < b", "a <= b"),
        (3, "comparison", "a < b", "a >= b"),
        (4, "deleted statement", "a += 2", "pass"),
        (4, "arithmetic", "a += 2", "a -= 2"),
        (4, "constant", "2", "3"),
        (4, "constant", "2", "1"),
        (5, "deleted statement", "return a * 0.5", "pass"),
        (5, "arithmetic", "a * 0.5", "a / 0.5"),
        (5, "constant", "0.5", "1.0"),
    ]
    for mutation in mutations(source):
        compile(mutation.source, "f.py", "exec")


def test_a_weak_check_leaves_survivors(copy: Path) -> None:
    check = copy / "check.py"
    text = check.read_text()
    weak = text[: text.index('@check("random lists"')] + text[text.index('@check("empty list"') :]
    check.write_text(weak)
    reported: list[str] = []
    outcomes = mutate_exercise(
        load_exercise(copy), None, None, 0.5, lambda o: reported.append(o.mutation.describe())
    )
    assert len(reported) == len(outcomes)
    survivors = [outcome.mutation.describe() for outcome in outcomes if outcome.survived]
    assert "line 8 (arithmetic): result += number  →  result -= number" in survivors
    assert {outcome.noticed_by for outcome in outcomes if not outcome.survived} == {"empty list"}


def test_mutation_needs_a_solution_that_passes(copy: Path) -> None:
    (copy / "solution.py").write_text((copy / "starter.py").read_text())
    with pytest.raises(ExerciseError, match="does not pass"):
        mutate_exercise(load_exercise(copy), None, 1, 0.5, lambda outcome: None)
