"""All kinds of labs by id."""

from __future__ import annotations

import importlib

from tutor.labs.scenario import LabKind

# id -> module with a LabKind called KIND; imported when asked for
_MODULES = {
    "request": "tutor.labs.request",
    "tokens": "tutor.labs.tokens",
    "forward": "tutor.labs.forward",
    "kv-cache": "tutor.labs.kv_cache",
    "kv-math": "tutor.labs.kv_math",
    "paged": "tutor.labs.paged",
}


class UnknownLab(KeyError):
    """There is no lab of that id; str() is a sentence."""

    def __str__(self) -> str:
        return f"There is no lab {self.args[0]!r}; there are {', '.join(_MODULES)}."


def kinds() -> tuple[str, ...]:
    return tuple(_MODULES)


def get_kind(kind_id: str) -> LabKind:
    """The lab's declaration. Raises UnknownLab."""
    if kind_id not in _MODULES:
        raise UnknownLab(kind_id)
    kind = importlib.import_module(_MODULES[kind_id]).KIND
    assert isinstance(kind, LabKind)
    return kind
