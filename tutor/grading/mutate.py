"""`tutor author mutate`: small changes of solution.py, and which of them the checks do not notice.

Kinds of change: comparison (`<` to `<=`, `==` to `!=` …), arithmetic (`+` to `-` …), boundary and constant
(an int plus and minus 1, a float times 2, True to False), deleted statement. A survivor is either a weak
check or a change that does not alter the behaviour; a person has to look.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tutor.grading.client import JudgeClient
from tutor.grading.errors import ExerciseError
from tutor.grading.exercise import Exercise
from tutor.grading.messages import CheckDone, Finished

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
}


class Mutation(NamedTuple):
    """One changed file: `line` of the solution, `before` and `after` as source text."""

    line: int
    kind: str
    before: str
    after: str
    source: str

    def describe(self) -> str:
        return f"line {self.line} ({self.kind}): {self.before}  →  {self.after}"


class Outcome(NamedTuple):
    """Whether the checks let a mutation pass, and otherwise the first check that noticed it."""

    mutation: Mutation
    survived: bool
    noticed_by: str


def mutations(source: str) -> Iterator[Mutation]:
    """All mutations of a file, in the order of its lines."""
    tree = ast.parse(source)
    found = [made for index, node in enumerate(ast.walk(tree)) for made in _of_node(tree, index, node)]
    yield from sorted(found, key=lambda mutation: mutation.line)


def _of_node(tree: ast.Module, index: int, node: ast.AST) -> Iterator[Mutation]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS.get(type(operator), ()):
                yield _changed(tree, index, "comparison", partial(_set_op, place=place, operator=other))
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _ARITHMETIC:
        operator_type = _ARITHMETIC[type(node.op)]
        yield _changed(tree, index, "arithmetic", partial(_set_field, name="op", value=operator_type()))
    elif isinstance(node, ast.Constant):
        for value in _other_constants(node.value):
            yield _changed(tree, index, "constant", partial(_set_field, name="value", value=value))
    for field in ("body", "orelse"):
        body = getattr(node, field, None)
        if isinstance(body, list) and not isinstance(node, ast.Module):
            for place, statement in enumerate(body):
                if _worth_deleting(statement):
                    yield _deleted(tree, index, field, place)


def _other_constants(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    return (value * 2 or 1.0,) if isinstance(value, float) else ()


def _worth_deleting(statement: ast.stmt) -> bool:
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    definition = isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Pass, ast.AnnAssign))
    return not docstring and not definition


def _node(tree: ast.Module, index: int) -> tuple[ast.Module, ast.AST]:
    """A copy of the tree and its node number `index` in walking order."""
    fresh = copy.deepcopy(tree)
    return fresh, list(ast.walk(fresh))[index]


def _changed(tree: ast.Module, index: int, kind: str, change: Callable[[ast.AST], None]) -> Mutation:
    fresh, node = _node(tree, index)
    before, line = ast.unparse(node), getattr(node, "lineno", 0)
    change(node)
    return Mutation(line, kind, before, ast.unparse(node), ast.unparse(ast.fix_missing_locations(fresh)))


def _set_op(node: ast.AST, place: int, operator: type[ast.cmpop]) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[place] = operator()


def _set_field(node: ast.AST, name: str, value: object) -> None:
    setattr(node, name, value)


def _deleted(tree: ast.Module, index: int, field: str, place: int) -> Mutation:
    fresh, node = _node(tree, index)
    body = getattr(node, field)
    statement = body[place]
    body[place] = ast.Pass()
    text = ast.unparse(statement).splitlines()[0]
    source = ast.unparse(ast.fix_missing_locations(fresh))
    return Mutation(statement.lineno, "deleted statement", text, "pass", source)


def mutate_exercise(
    item: Exercise,
    model: str | None,
    limit: int | None,
    call_seconds: float,
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    """Grade every mutation of the exercise's solution. ExerciseError when the solution itself fails.

    limit: take at most so many, spread over the file. call_seconds: endless loops are common here, so a
    call gets this limit if it is below the exercise's own.
    """
    found = list(mutations(item.solution.read_text(encoding="utf-8")))
    if limit is not None and len(found) > limit:
        found = [found[position * len(found) // limit] for position in range(limit)]
    seconds = min(call_seconds, item.limits.call_seconds)

    async def run() -> list[Outcome]:
        client = JudgeClient(model, item.folder.parent, warm=False)
        try:
            if not (await client.verdict(item.id, item.solution)).passed:
                raise ExerciseError(f"exercises/{item.id}/solution.py does not pass; repair it first.")
            return [await _grade(item, mutation, client, seconds, report) for mutation in found]
        finally:
            await client.close()

    return asyncio.run(run())


async def _grade(
    item: Exercise,
    mutation: Mutation,
    client: JudgeClient,
    seconds: float,
    report: Callable[[Outcome], None],
) -> Outcome:
    """Run the checks until one notices the mutation."""
    noticed = ""
    with tempfile.TemporaryDirectory(prefix="inference-tutor-mutate-") as scratch:
        path = Path(scratch) / item.file
        path.write_text(mutation.source, encoding="utf-8")
        async with aclosing(client.check(item.id, path, call_seconds=seconds)) as events:
            async for event in events:
                if isinstance(event, CheckDone) and event.result.status != "pass":
                    noticed = event.result.name
                    break
                if isinstance(event, Finished) and not event.verdict.passed:
                    noticed = "import"
    outcome = Outcome(mutation, not noticed, noticed)
    report(outcome)
    return outcome
