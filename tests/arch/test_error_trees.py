"""The tree in a package's errors.py names all of its exceptions, under the class that each derives from."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

ROOTS = {"tutor.llama": "EngineError", "tutor.serving": "ServingError", "tutor.grading": "GradingError"}
BRANCH = re.compile(r"^(?P<lead>[ │]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?P<what> {2,}\S.*)?$")


def written(package: str) -> dict[str, str]:
    """name -> parent, from the docstring; the root has no parent."""
    doc = importlib.import_module(f"{package}.errors").__doc__ or ""
    root = ROOTS[package]
    path, tree = list[str](), dict[str, str]()
    begun = False
    for line in doc.splitlines():
        found = BRANCH.match(line)
        if found is None or not (begun or found["name"] == root):
            continue
        if not begun:
            begun, start = True, len(found["lead"])
        depth = (line.index(found["name"]) - start) // 4
        assert depth == 0 or found["what"], f"{found['name']} is not explained"
        path[depth:] = [found["name"]]
        tree[found["name"]] = path[depth - 1] if depth else ""
    return tree


def defined(package: str) -> dict[str, str]:
    """name -> parent of every class below the root that the package's modules define."""
    folder = importlib.import_module(package)
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{package}.{module.name}")
    root = getattr(importlib.import_module(f"{package}.errors"), ROOTS[package])
    tree, left = {root.__name__: ""}, [root]
    while left:
        parent = left.pop()
        for child in parent.__subclasses__():
            if child.__module__.startswith(package + "."):
                tree[child.__name__] = parent.__name__
                left.append(child)
    return tree


@pytest.mark.parametrize("package", ROOTS)
def test_the_docstring_has_the_whole_tree(package: str) -> None:
    assert written(package) == defined(package)
