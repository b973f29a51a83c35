"""`tutor author lint`: what an exercise folder has to prove before it is shipped.

The starter fails, the solution passes with three seeds, every mutant fails the check it names with the
phrase it names, starter and solution agree on names and parameters, and nothing else lies in the folder.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from tutor.curriculum.dag import Course
from tutor.grading.client import DEFAULT_SEED, JudgeClient
from tutor.grading.errors import ExerciseError, JudgeError
from tutor.grading.exercise import EQUIVALENT_FILE, FOLDER_FILES, Exercise
from tutor.grading.messages import CheckDone, Finished
from tutor.grading.mutate import mutations_of, read_equivalents
from tutor.grading.node import node_problem
from tutor.grading.verdict import CheckResult, Verdict

SEEDS = (DEFAULT_SEED, 2, 3)
MIN_HINTS = 3
MIN_MUTANTS = 3
_ALLOWED_IMPORTS = frozenset({"__future__", "numpy", "tutor.grading.kit"})

Report = Callable[[str, tuple[str, ...]], None]


class Claim(NamedTuple):
    """What a mutant's header promises."""

    check: str
    phrase: str


def lint_exercises(
    items: list[Exercise],
    model: str | None,
    report: Report,
    also: Callable[[Exercise], tuple[str, ...]] = lambda item: (),
) -> bool:
    """Lint exercises, also of several folders; whether none has a problem. Not from inside an event loop.

    also: further problems of an exercise that can be seen without running it.
    """

    async def run() -> bool:
        clean = True
        for root in dict.fromkeys(item.folder.parent for item in items):
            client = JudgeClient(model, root, warm=False)
            try:
                for item in (each for each in items if each.folder.parent == root):
                    problems = (*static_problems(item), *also(item), *await _run_problems(item, client))
                    report(item.id, problems)
                    clean = clean and not problems
            finally:
                await client.close()
        return clean

    return asyncio.run(run())


def place_problems(item: Exercise, course: Course, others: Iterable[Exercise]) -> tuple[str, ...]:
    """What is wrong with an exercise's place: its lesson, and its file beside those of all others."""
    problems = []
    if item.lesson != item.id or item.id not in course:
        reason = "a lesson finds its exercise by its own id"
        problems.append(f"exercise.toml: id {item.id!r} and lesson {item.lesson!r}: {reason}")
    for other in others:
        if other.file == item.file and other.id != item.id:
            problems.append(f"exercise.toml: file {item.file!r} is that of the exercise {other.id!r} already")
    return tuple(problems)


def static_problems(item: Exercise) -> tuple[str, ...]:
    """Everything that can be seen without running code."""
    return tuple(_static(item))


def _static(item: Exercise) -> Iterator[str]:
    if len(item.hints) < MIN_HINTS:
        yield f"exercise.toml: {len(item.hints)} hints, at least {MIN_HINTS} are needed"
    if len(item.mutants) < MIN_MUTANTS:
        yield f"mutants/: {len(item.mutants)} mutants, at least {MIN_MUTANTS} are needed"
    if not item.statement.strip():
        yield "exercise.toml: the statement is empty"
    expected = {*FOLDER_FILES, *item.extra_files, *item.variants, "mutants"}
    present = {path.name for path in item.folder.iterdir() if path.name != "__pycache__"}
    yield from (f"stray file {name}" for name in sorted(present - expected - {EQUIVALENT_FILE}))
    yield from (f"missing file {name}" for name in sorted(expected - present))
    folder = item.folder / "mutants"
    if folder.is_dir():
        names = {path.name for path in folder.iterdir() if path.name != "__pycache__"}
        strays = names - {path.name for path in item.mutants}
        yield from (f"stray file mutants/{name}" for name in sorted(strays))
    if expected <= present:
        yield from _signature_problems(item)
        yield from _import_problems(item)
        yield from _equivalent_problems(item)
    for version in range(2, item.version + 1):
        if not item.changes.get(version, "").strip():
            yield f"exercise.toml: `changes` does not say what version {version} changed"
    yield from _claim_problems(item)
    for variant in item.all_languages()[1:]:
        yield from _variant_problems(variant)


def _variant_problems(item: Exercise) -> Iterator[str]:
    """The folder of another language: its files, and no others."""
    folder, mutants = item.language, item.files / "mutants"
    expected = {item.starter.name, item.solution.name, "mutants"}
    present = {path.name for path in item.files.iterdir()} if item.files.is_dir() else set()
    yield from (f"stray file {folder}/{name}" for name in sorted(present - expected))
    yield from (f"missing file {folder}/{name}" for name in sorted(expected - present))
    strays = set(mutants.iterdir()) - set(item.mutants) if mutants.is_dir() else set()
    yield from (f"stray file {folder}/mutants/{path.name}" for path in sorted(strays))
    if len(item.mutants) < MIN_MUTANTS:
        yield f"{folder}/mutants/: {len(item.mutants)} mutants, at least {MIN_MUTANTS} are needed"
    yield from _claim_problems(item)


def _claim_problems(item: Exercise) -> Iterator[str]:
    for mutant in item.mutants:
        if claim(mutant) is None:
            shown = mutant.relative_to(item.folder)
            yield f"{shown}: the header needs the lines `# fails: CHECK` and `# says: PHRASE`"


def claim(mutant: Path) -> Claim | None:
    """The two header lines of a mutant, or None."""
    text = mutant.read_text(encoding="utf-8")
    check = re.search(r"^(?:#|//) fails: (.+)$", text, re.MULTILINE)
    phrase = re.search(r"^(?:#|//) says: (.+)$", text, re.MULTILINE)
    return Claim(check[1].strip(), phrase[1].strip()) if check and phrase else None


def signatures(source: str) -> dict[str, str]:
    """Public functions, classes and methods of a file with their parameters: name → `(self, k, v=1)`."""
    found: dict[str, str] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not node.name.startswith("_") or node.name == "__init__":
                    found[prefix + node.name] = _parameters(node.args)
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[prefix + node.name] = "class"
                visit(node.body, f"{prefix}{node.name}.")

    visit(ast.parse(source).body, "")
    return found


def _parameters(arguments: ast.arguments) -> str:
    """Names and defaults, without annotations."""
    plain = ast.arguments(
        posonlyargs=[ast.arg(item.arg) for item in arguments.posonlyargs],
        args=[ast.arg(item.arg) for item in arguments.args],
        vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=[ast.arg(item.arg) for item in arguments.kwonlyargs],
        kw_defaults=arguments.kw_defaults,
        kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=arguments.defaults,
    )
    return f"({ast.unparse(plain)})"


def _signature_problems(item: Exercise) -> Iterator[str]:
    """Everything public in the starter is in the solution with the same parameters; entries are in both."""
    starter = signatures(item.starter.read_text(encoding="utf-8"))
    solution = signatures(item.solution.read_text(encoding="utf-8"))
    for name in item.entry:
        for file, found in (("starter.py", starter), ("solution.py", solution)):
            if name not in found:
                yield f"{file}: {name} of `entry` is not defined"
    for name, parameters in starter.items():
        if name in solution and solution[name] != parameters:
            yield f"{name}: starter.py has {parameters}, solution.py has {solution[name]}"
        elif name not in solution:
            yield f"{name} is in starter.py but not in solution.py"


def _import_problems(item: Exercise) -> Iterator[str]:
    """check.py uses the kit and NumPy, besides the standard library."""
    for node in ast.walk(ast.parse(item.check_file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        for name in names:
            outside = name.startswith("tutor") and name not in _ALLOWED_IMPORTS
            if outside or name.split(".")[0] == "llama_cpp":
                yield f"check.py imports {name}; only tutor.grading.kit and numpy are meant for checks"


def _equivalent_problems(item: Exercise) -> Iterator[str]:
    """Every entry names a mutation that exists, with a reason."""
    try:
        listed = read_equivalents(item)
    except ExerciseError as error:
        yield str(error)
        return
    known = {(each.function, each.was, each.now) for each in mutations_of(item)} if listed else set()
    for entry in listed:
        if entry.key not in known:
            yield f"{EQUIVALENT_FILE}: solution.py has no mutation {entry.was!r} to {entry.now!r} any more"
        if not entry.why.strip():
            yield f"{EQUIVALENT_FILE}: {entry.now!r} has no reason"


async def _run_problems(item: Exercise, client: JudgeClient) -> tuple[str, ...]:
    """Everything that only running the files shows. Other languages are left out where they cannot run."""
    if not all((item.folder / name).is_file() for name in FOLDER_FILES):
        return ()
    problems = await _language_problems(item, client)
    if item.variants and not node_problem():
        for variant in item.all_languages()[1:]:
            found = await _language_problems(variant, client)
            problems += [f"{variant.language}/{problem}" for problem in found]
    return tuple(problems)


async def _language_problems(item: Exercise, client: JudgeClient) -> list[str]:
    """Starter, solution and mutants of one language."""
    problems: list[str] = []
    if not (item.starter.is_file() and item.solution.is_file()):
        return problems
    try:
        started = await client.verdict(item.id, item.starter)
        if started.status != "fail":
            problems.append(f"{item.starter.name}: the verdict is {started.status}, not fail {_why(started)}")
        for seed in SEEDS:
            solved = await client.verdict(item.id, item.solution, seed)
            if not solved.passed:
                problems.append(f"{item.solution.name}, seed {seed}: {solved.status} {_why(solved)}")
        for mutant in item.mutants:
            problems += await _mutant_problems(item, mutant, client)
    except JudgeError as error:
        problems.append(f"no verdict: {error}")
    return problems


async def _mutant_problems(item: Exercise, mutant: Path, client: JudgeClient) -> tuple[str, ...]:
    """Run a mutant until the check that it names has failed, or to its end."""
    name, promised = f"mutants/{mutant.name}", claim(mutant)
    if promised is None:
        return ()
    async with aclosing(client.check(item.id, mutant)) as events:
        async for event in events:
            if isinstance(event, CheckDone) and _is_failure(event.result, promised):
                if promised.phrase in event.result.message:
                    return ()
                said = f"it is {event.result.message!r}"
                return (f"{name}: the message does not hold {promised.phrase!r}; {said}",)
            if isinstance(event, Finished):
                return (_unnoticed(name, promised, event.verdict),)
    raise JudgeError("The judge ended without a verdict.")


def _is_failure(result: CheckResult, promised: Claim) -> bool:
    return result.name == promised.check and result.status != "pass"


def _unnoticed(name: str, promised: Claim, verdict: Verdict) -> str:
    if promised.check not in {result.name for result in verdict.checks}:
        return f"{name}: there is no check {promised.check!r} {_why(verdict)}"
    failed = ", ".join(verdict.failed_checks) or "none"
    return f"{name}: passes {promised.check!r}; failed checks: {failed}"


def _why(verdict: Verdict) -> str:
    """The first message of a verdict, in parentheses."""
    messages = [verdict.message, *(f"{item.name}: {item.message}" for item in verdict.checks if item.message)]
    first = next((message for message in messages if message), "")
    return f"({first})" if first else ""
