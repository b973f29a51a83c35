"""The judge's model: loaded on first use or ahead of it, once a judge, with its computing time counted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tutor.llama.reference import ReferenceModel


class Stopwatch:
    """Seconds spent in timed calls; a call inside a timed call is not counted twice."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed; sessions that it returns are timed too."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            started = time.perf_counter()
            try:
                result = function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started
                self._inside = False
            return Timed(result, self) if type(result).__name__ == "Session" else result

        return timed


class Timed:
    """An object whose methods are timed and whose other attributes are as they are."""

    def __init__(self, target: object, watch: Stopwatch) -> None:
        self._target = target
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._watch.wrap(value) if callable(value) else value

    def __enter__(self) -> Timed:
        self._target.__enter__()  # type: ignore[attr-defined]
        return self

    def __exit__(self, *error: object) -> None:
        self._target.__exit__(*error)  # type: ignore[attr-defined]


class Engine:
    """`path`: a GGUF file, or None for the one that the tutor finds by itself."""

    def __init__(self, path: str | None = None) -> None:
        self.watch = Stopwatch()
        self._path = path
        self._model: ReferenceModel | None = None
        self._digest = ""
        self.name = ""  # the model file's name, once a check has used the model or a reference

    def load(self) -> ReferenceModel:
        """Load the model, unless it is loaded. Raises tutor.llama.errors.EngineError when that fails."""
        if self._model is None:
            from tutor.llama.reference import ReferenceModel

            self._model = ReferenceModel.load(self._path)
            self.name = self._model.path.stem
        return self._model

    @property
    def model(self) -> ReferenceModel:
        """The model with its time counted; loaded on first use."""
        return cast("ReferenceModel", Timed(self.load(), self.watch))

    def expect_named(self) -> None:
        """Raises EngineError when a model was asked for that is no model file. The one that the tutor finds
        by itself may be absent: exercises without a model are graded all the same.
        """
        from tutor.llama.model import ENVIRONMENT, find_model

        if self._path or os.environ.get(ENVIRONMENT):
            find_model(self._path)

    def digest(self) -> str:
        """SHA-256 of the model file; does not load the model."""
        if not self._digest:
            from tutor.llama.model import file_digest, find_model

            path = find_model(self._path)
            self._digest, self.name = file_digest(path), path.stem
        return self._digest
