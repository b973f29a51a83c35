"""All kinds of labs by id."""

from __future__ import annotations

import importlib

from tutor.labs.scenario import LabKind

# id -> module with a LabKind called KIND; imported when asked for
_MODULES = {
    "request": "tutor.labs.request",
    "tokens": "tutor.labs.tokens",
    "forward": "tutor.labs.forward",
    "attention": "tutor.labs.attention",
    "sampling": "tutor.labs.sampling",
    "kv-cache": "tutor.labs.kv_cache",
    "kv-math": "tutor.labs.kv_math",
    "run-local": "tutor.labs.run_local",
    "prefill-decode": "tutor.labs.prefill_decode",
    "paged": "tutor.labs.paged",
    "serving": "tutor.labs.serving",
}

# what only a trace can show: not listed, not run
_TRACES = {"serve": "tutor.labs.serve", "failure": "tutor.labs.failure"}


class UnknownLab(KeyError):
    """There is no lab of that id; str() is a sentence."""

    def __str__(self) -> str:
        return f"There is no lab {self.args[0]!r}; there are {', '.join(_MODULES)}."


def kinds() -> tuple[str, ...]:
    return tuple(_MODULES)


def get_kind(kind_id: str) -> LabKind:
    """The lab's declaration. Raises UnknownLab."""
    module = _MODULES.get(kind_id) or _TRACES.get(kind_id)
    if module is None:
        raise UnknownLab(kind_id)
    kind = importlib.import_module(module).KIND
    assert isinstance(kind, LabKind)
    return kind
