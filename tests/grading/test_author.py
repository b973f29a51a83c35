"""Lint and mutation run: they find what is wrong with an exercise, and nothing where nothing is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tutor.grading.errors import ExerciseError
from tutor.grading.exercise import exercise_ids, find_exercise, load_exercise
from tutor.grading.lint import lint_exercises, signatures, static_problems
from tutor.grading.mutate import Report, choose, mutate_exercise, mutations_of, read_equivalents
from tutor.grading.mutations import mutations


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


SOURCE = """
def f(a, b):
    \"\"\"Not touched: 1 < 2.\"\"\"
    if a < b:
        a += 2
    return a * 0.5
"""


def test_mutations_of_every_kind() -> None:
    found = [(m.line, m.kind, m.before, m.after) for m in mutations(SOURCE)]
    assert found == [
        (4, "condition", "if a < b:", "if True:"),
        (4, "condition", "if a < b:", "if False:"),
        (4, "deleted statement", "if a < b:", "pass"),
        (4, "comparison", "a < b", "a <= b"),
        (4, "comparison", "a < b", "a >= b"),
        (5, "arithmetic", "a += 2", "a -= 2"),
        (5, "deleted statement", "a += 2", "pass"),
        (5, "constant", "2", "3"),
        (5, "constant", "2", "1"),
        (6, "deleted statement", "return a * 0.5", "pass"),
        (6, "arithmetic", "a * 0.5", "a / 0.5"),
        (6, "constant", "0.5", "1.0"),
    ]
    assert len({mutation.source for mutation in mutations(SOURCE)}) == len(found)
    for mutation in mutations(SOURCE):
        compile(mutation.source, "f.py", "exec")


@pytest.mark.parametrize(
    ("line", "kind", "changed"),
    [
        ("return a and b", "boolean", {"return a or b"}),
        ("return not a", "boolean", {"return a"}),
        ("return -a", "sign", {"return a"}),
        ("return a[1:n]", "slice", {"return a[:n]", "return a[1:]"}),
        ("return np.sqrt(a)", "call", {"return a"}),
        ("return a.copy()", "call", {"return a"}),
        ("return min(a)", "call", {"return max(a)"}),
        ("return np.sum(a, axis=0)", "argument", {"return np.sum(a)"}),
        ("return [x for x in a if x]", "condition", {"return [x for x in a if True]"}),
        ("return 'a'", "constant", {"return 'ax'"}),
        ("while a: break", "jump", {"continue"}),
        ("while a: break", "condition", {"while False:"}),
    ],
)
def test_kinds_one_by_one(line: str, kind: str, changed: set[str]) -> None:
    source = (
        f"import numpy as np\nclass C:\n    def f(self, a: 'int', n: int = None) -> 'x':\n        {line}\n"
    )
    found = [mutation for mutation in mutations(source) if mutation.kind == kind]
    assert {mutation.now for mutation in found} == changed
    assert {mutation.function for mutation in found} == {"C.f"}
    assert all("'intx'" not in mutation.source for mutation in mutations(source))  # annotations stay


def mutated(folder: Path, **options: float) -> Report:
    item = load_exercise(folder)
    counted: list[int] = []
    made = mutate_exercise(
        item,
        None,
        mutations_of(item),
        lambda done, outcome: counted.append(done),
        call_seconds=0.5,
        **options,
    )
    assert counted == list(range(1, len(made.outcomes) + 1))
    return made


def test_a_weak_check_leaves_survivors(copy: Path) -> None:
    check = copy / "check.py"
    text = check.read_text()
    weak = text[: text.index('@check("random lists"')] + text[text.index('@check("empty list"') :]
    check.write_text(weak)
    made = mutated(copy)
    survivors = [outcome.mutation.describe() for outcome in made.outcomes if outcome.survived]
    assert "line 8 (arithmetic): result += number  →  result -= number" in survivors
    assert {outcome.noticed_by for outcome in made.outcomes if not outcome.survived} == {"empty list"}
    assert made.wrong == len(survivors) > 0


LISTED = '[[equivalent]]\nfunction = "total"\nwas = "result = 0"\nnow = "result = 0 + 0"\nwhy = "{why}"\n'


def test_a_survivor_needs_a_reason(copy: Path) -> None:
    solution = copy / "solution.py"
    solution.write_text(solution.read_text().replace("return result", "return int(result)"))
    assert [each.wrong for each in mutated(copy).outcomes if each.survived] == ["no check notices it"]

    entry = LISTED.format(why="It is an int already.")
    entry = entry.replace("result = 0 + 0", "return result").replace("result = 0", "return int(result)")
    (copy / "equivalent.toml").write_text(entry)
    made = mutated(copy)
    assert made.wrong == 0 and [each.why for each in made.outcomes if each.why] == ["It is an int already."]
    assert static_problems(load_exercise(copy)) == ()

    noticed = LISTED.format(why="Wrongly listed.").replace("result = 0 + 0", "result = 1")
    (copy / "equivalent.toml").write_text(entry + noticed)
    assert [each.wrong for each in mutated(copy).outcomes if each.wrong] == [
        "equivalent.toml calls it equivalent, but 'random lists' notices it"
    ]


def test_lint_finds_what_is_wrong_with_the_list(copy: Path) -> None:
    (copy / "equivalent.toml").write_text(LISTED.format(why=" "))
    assert set(static_problems(load_exercise(copy))) == {
        "equivalent.toml: solution.py has no mutation 'result = 0' to 'result = 0 + 0' any more",
        "equivalent.toml: 'result = 0 + 0' has no reason",
    }
    (copy / "equivalent.toml").write_text("[[equivalent]]\nwas = 3\n")
    (problem,) = static_problems(load_exercise(copy))
    assert problem.startswith("exercises/sum/equivalent.toml: Expected `str`, got `int`")


def test_the_run_is_bounded(copy: Path) -> None:
    made = mutated(copy, run_seconds=0.0)
    assert made.left == len(mutations_of(load_exercise(copy))) - len(made.outcomes) > 0


def test_mutation_needs_a_solution_that_passes(copy: Path) -> None:
    (copy / "solution.py").write_text((copy / "starter.py").read_text())
    with pytest.raises(ExerciseError, match="does not pass"):
        mutated(copy)


def test_every_version_says_what_it_changed(copy: Path) -> None:
    toml = copy / "exercise.toml"
    text = toml.read_text().replace("version = 1", "version = 3")
    toml.write_text(f'changes = {{ 3 = "Empty lists count." }}\n{text}')
    assert static_problems(load_exercise(copy)) == (
        "exercise.toml: `changes` does not say what version 2 changed",
    )


@pytest.mark.parametrize("ident", exercise_ids())
def test_hardly_any_mutation_is_excused(ident: str) -> None:
    """`tutor author mutate` ends with 1 for a survivor without a reason: this bounds those with one."""
    item = find_exercise(ident)
    assert len(read_equivalents(item)) <= 0.05 * len(mutations_of(item))


def test_a_part_of_the_mutations_is_chosen() -> None:
    found = list(mutations(SOURCE))
    assert choose(found, 1, None) == choose(found, 1, 99) == found
    assert choose(found, 5, None) == found[4:] and choose(found, 99, 3) == []
    assert choose(found, 1, 3) == [found[0], found[4], found[8]]
