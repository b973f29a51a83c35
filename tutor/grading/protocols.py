"""What a check may do with the learner's process, as types; the judge implements them in calls.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Handle(Protocol):
    """An object that lives in the learner's process. It may be passed as an argument of any call."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method; the result comes back as a plain value."""

    def new(self, method: str, *args: Any, **kwargs: Any) -> Handle:
        """Call a method and keep its result in the guest (for example `child = table.new("fork")`)."""

    def get(self, attribute: str) -> Any:
        """The value of an attribute."""

    def value(self) -> Any:
        """The object itself, as a plain value (to see whether an argument was changed in place)."""


class Guest(Protocol):
    """The learner's module in its own process.

    Values that cross: None, bool, int, float, str, bytes, list, tuple, set, dict, NumPy arrays (copied);
    NumPy scalars arrive as numbers, dataclasses, NamedTuples and simple objects as `Record`.
    """

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the learner's file; the result comes back as a plain value."""

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        """Call a class (or function) and keep the result in the guest."""

    def put(self, value: Any) -> Handle:
        """Send a value once; pass the handle to several calls (large arrays)."""


class References(Protocol):
    """Values that do not depend on the learner, kept in memory and on disk."""

    def get(self, key: str, make: Callable[[], Any]) -> Any: ...


class Callback:
    """A callable or an object of the judge, as it is passed to the learner's code."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        methods: Mapping[str, Callable[..., Any]],
        attrs: Mapping[str, Any],
        label: str,
    ) -> None:
        self.function = function
        self.methods = dict(methods)
        self.attrs = dict(attrs)
        self.label = label
