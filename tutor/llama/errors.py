"""Everything that can go wrong with the engine, as one tree of exceptions.

    EngineError
    ├── EngineUnavailable   llama-cpp-python is not installed or does not load
    ├── ModelNotFound       no model file at the path asked for
    ├── BrokenModel         a file is there, but it is not a whole GGUF model
    ├── EngineMisuse        a call that llama.cpp would answer by ending the process
    ├── NoSpace             no free KV cells for a batch; the cache is unchanged, so retrying is safe
    ├── BadBatch            a batch that llama.cpp refuses: gap in positions, unknown slot, empty …
    ├── DecodeAborted       the abort callback stopped a decode between two graph nodes
    ├── EngineFailed        llama.cpp reported a failure of its own while it computed
    └── BlobError           bytes that are no saved sequence of the layout that we know (tutor.llama.blob)

`str(error)` is what a user sees: one sentence that says what is wrong, then the way out. This module
imports nothing, so that a process without the engine can catch these.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all engine errors. `sentence` says what is wrong, `way_out` what to do about it."""

    def __init__(self, sentence: str, way_out: str = "") -> None:
        super().__init__(sentence, way_out)
        self.sentence = sentence
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.sentence} {self.way_out}".rstrip()


class EngineUnavailable(EngineError):
    """llama-cpp-python cannot be imported on this machine."""


class ModelNotFound(EngineError):
    """There is no model file where one was looked for."""


class BrokenModel(EngineError):
    """The model file is unreadable, cut short or not a GGUF file."""


class EngineMisuse(EngineError):
    """A call that would end the process inside llama.cpp; it was not made."""


class NoSpace(EngineError):
    """The KV cache has no free cells for the batch; nothing was changed."""


class BadBatch(EngineError):
    """The batch itself is invalid; nothing was changed."""


class DecodeAborted(EngineError):
    """The decode was stopped by the abort callback; parts of the batch may already be in the cache."""


class EngineFailed(EngineError):
    """llama.cpp failed while it computed."""
