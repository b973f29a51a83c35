"""Small changes of a Python file, one at a time: what `tutor author mutate` tries on solution.py.

Kinds: comparison (`<` to `<=`, `==` to `!=` …), arithmetic (`+` to `-` …), constant (an int plus and minus 1,
a float times 2, True to False, a string made longer), condition (always or never true), boolean (`and` to
`or`, `not x` to `x`), sign (`-x` to `x`), slice (a bound left out), call (`f(x)` to `x`, `x.m()` to `x`, min
to max), argument (a keyword left out), jump (break to continue), deleted statement.
Annotations and docstrings are left alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}

# (kind, what to do with a copy of the node: change it and return it, or return what takes its place)
Change = tuple[str, Callable[[ast.AST], ast.AST]]


class Mutation(NamedTuple):
    """One changed file. `before` and `after` are the smallest part that differs, as source text.

    function: where, such as `KVCache.attend` (empty at module level); was, now: the whole line, formatted by
    ast.unparse. These three name a mutation in `equivalent.toml`: they survive an edit elsewhere in the file.
    """

    line: int
    kind: str
    before: str
    after: str
    source: str
    function: str
    was: str
    now: str

    def describe(self) -> str:
        return f"line {self.line} ({self.kind}): {self.before}  →  {self.after}"


def mutations(source: str) -> Iterator[Mutation]:
    """All mutations of a file, in the order of its lines; each changed text once."""
    tree = ast.parse(source)
    lines = ast.unparse(tree).splitlines()
    functions, skipped, modules = _functions(tree), _skipped(tree), _imported(tree)
    seen = {"\n".join(lines)}
    found = []
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for kind, change in _changes(node, modules):
            made = _mutated(tree, index, kind, change, lines, functions[id(node)])
            if made.source not in seen:
                seen.add(made.source)
                found.append(made)
    yield from sorted(found, key=lambda mutation: mutation.line)


def _functions(tree: ast.Module) -> dict[int, str]:
    """id(node) → the qualified name of the function or class that it stands in."""
    names: dict[int, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        names[id(node)] = name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{name}.{node.name}" if name else node.name
        for child in ast.iter_child_nodes(node):
            visit(child, name)

    visit(tree, "")
    return names


def _skipped(tree: ast.Module) -> set[int]:
    """id of every node in an annotation, a docstring or an import."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        roots += [part for name in ("annotation", "returns") if (part := getattr(node, name, None))]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            roots.append(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            roots.append(node)
    return {id(node) for root in roots for node in ast.walk(root)}


def _imported(tree: ast.Module) -> set[str]:
    """Names that imports bind, such as `np`: in `np.sqrt(x)` the x matters, in `x.astype(t)` as well."""
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return {alias.asname or alias.name.split(".")[0] for node in imports for alias in node.names}


def _mutated(
    tree: ast.Module,
    index: int,
    kind: str,
    change: Callable[[ast.AST], ast.AST],
    lines: list[str],
    function: str,
) -> Mutation:
    """Apply a change to node number `index` (in walking order) of a copy of the tree."""
    fresh = copy.deepcopy(tree)
    node = list(ast.walk(fresh))[index]
    before = ast.unparse(node).strip().splitlines()[0]
    line = next(part.lineno for part in ast.walk(node) if hasattr(part, "lineno"))
    new = change(node)
    if new is not node:
        _put_in_place(fresh, node, new)
    source = ast.unparse(ast.fix_missing_locations(fresh))
    pairs = zip(lines, source.splitlines(), strict=False)
    was, now = next(((old, new) for old, new in pairs if old != new), ("", ""))
    after = ast.unparse(new).strip().splitlines()[0]
    return Mutation(line, kind, before, after, source, function, was.strip(), now.strip())


def _put_in_place(tree: ast.Module, node: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if item is node else item for item in value]


# --- which changes a node allows ----------------------------------------------------------------


def _changes(node: ast.AST, modules: set[str]) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS.get(type(operator), ()):
                yield "comparison", _set_item("ops", place, other())
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", _set("op", _ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.Constant):
        for value in _other_constants(node.value):
            yield "constant", _set("value", value)
    elif isinstance(node, ast.BoolOp):
        yield "boolean", _set("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "boolean" if isinstance(node.op, ast.Not) else "sign", lambda n: n.operand  # type: ignore[attr-defined]
    elif isinstance(node, ast.Slice):
        for name in ("lower", "upper", "step"):
            if getattr(node, name) is not None:
                yield "slice", _set(name, None)
    elif isinstance(node, ast.Call):
        yield from _call_changes(node, modules)
    elif isinstance(node, (ast.Break, ast.Continue)):
        other_jump = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
        yield "jump", lambda n: ast.copy_location(other_jump, n)
    yield from _condition_changes(node)
    if isinstance(node, ast.stmt) and _worth_deleting(node):
        yield "deleted statement", lambda n: ast.copy_location(ast.Pass(), n)


def _set(name: str, value: object) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        setattr(node, name, value)
        return node

    return change


def _set_item(name: str, place: int, value: object) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        getattr(node, name)[place] = value
        return node

    return change


def _other_constants(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    if isinstance(value, str):
        return (f"{value}x",)
    return (value * 2 or 1.0,) if isinstance(value, float) else ()


def _condition_changes(node: ast.AST) -> Iterator[Change]:
    """Conditions that always or never hold; a `while` that always does would only run into the limit."""
    if isinstance(node, (ast.If, ast.IfExp)):
        yield "condition", _set("test", ast.Constant(True))
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "condition", _set("test", ast.Constant(False))
    if isinstance(node, ast.comprehension):
        for place in range(len(node.ifs)):
            yield "condition", _set_item("ifs", place, ast.Constant(True))


def _call_changes(node: ast.Call, modules: set[str]) -> Iterator[Change]:
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
        yield "call", _set("func", ast.Name(_OPPOSITES[node.func.id]))
    elif owner is not None and not (isinstance(owner, ast.Name) and owner.id in modules):
        yield "call", lambda n: n.func.value  # type: ignore[attr-defined]
    elif node.args and not isinstance(node.args[0], ast.Starred):
        yield "call", lambda n: n.args[0]  # type: ignore[attr-defined]
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "argument", _without_keyword(place)


def _without_keyword(place: int) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        del node.keywords[place]
        return node

    return change


def _worth_deleting(statement: ast.stmt) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass, ast.AnnAssign)
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return not docstring and not isinstance(statement, kinds)
