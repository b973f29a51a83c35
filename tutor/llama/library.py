"""Loads llama.cpp on demand and keeps its log off the terminal.

The C library writes its log to stderr unless a callback takes it. Ours puts whole lines into a bounded
ring, which is also where the size of the KV buffer and the map of KV cells are read from.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from tutor.llama.errors import EngineUnavailable

PACKAGE = "llama-cpp-python"
INSTALL = "Type: pip install llama-cpp-python==0.3.36 (it is compiled, so a C and a C++ compiler are needed)."
GPU_INSTALL = (
    "Use n_gpu_layers=0, or compile it for the GPU: CMAKE_ARGS=-DGGML_CUDA=on (Metal is built in on a Mac) "
    "pip install --force-reinstall llama-cpp-python==0.3.36."
)
RING_LINES = 4000
CHATTER = b"llama_graph_n_input_tensors"  # about a thousand lines for each context, of use to nobody here


class LogRing:
    """The last lines of llama.cpp's log.

    llama.cpp hands over pieces of text, not lines; a line is kept when its newline arrives.
    """

    def __init__(self, capacity: int = RING_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=capacity)
        self._captures: list[list[str]] = []
        self._pending = ""

    def feed(self, text: str) -> None:
        """Take a piece of log text, as the callback receives it."""
        *whole, self._pending = (self._pending + text).split("\n")
        for line in whole:
            self._lines.append(line)
            for capture in self._captures:
                capture.append(line)

    def drain(self) -> list[str]:
        """Return the lines kept so far, oldest first, and forget them."""
        lines = list(self._lines)
        self._lines.clear()
        return lines

    def tail(self, count: int) -> list[str]:
        """The last `count` lines, without forgetting them."""
        return list(self._lines)[-count:]

    @contextmanager
    def capture(self) -> Iterator[list[str]]:
        """Collect every line logged inside the block into the list that is yielded."""
        lines: list[str] = []
        self._captures.append(lines)
        try:
            yield lines
        finally:
            # By identity: two nested captures may hold equal lists.
            self._captures = [kept for kept in self._captures if kept is not lines]


@cache
def log() -> LogRing:
    """The one ring of this process (llama.cpp's log callback is process-wide too)."""
    return LogRing()


@contextmanager
def captured_log() -> Iterator[list[str]]:
    """`with captured_log() as lines:` collects what llama.cpp logs inside the block, unbounded."""
    with log().capture() as lines:
        yield lines


@cache
def _callback(module: ModuleType) -> object:
    """The C callback that feeds the ring; cached because llama.cpp keeps its address for good."""
    feed = log().feed

    def receive(_level: int, text: bytes | None, _user_data: object) -> None:
        if text and not text.startswith(CHATTER):
            feed(text.decode("utf-8", "replace"))

    callback: object = module.llama_log_callback(receive)
    return callback


@cache
def load() -> ModuleType:
    """Return the low-level llama_cpp module, loaded and silent.

    Raises EngineUnavailable when the package is missing or its library does not load.
    """
    try:
        module = importlib.import_module("llama_cpp.llama_cpp")
    except ModuleNotFoundError as error:
        raise EngineUnavailable(f"The inference engine is not installed ({error}).", INSTALL) from error
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EngineUnavailable(f"The inference engine does not load ({reason}).", INSTALL) from error
    # A failing assertion would start gdb on the process first, which takes long and writes to the terminal.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    module.llama_log_set(_callback(module), ctypes.c_void_p(0))
    module.llama_backend_init()
    return module


def complaints(lines: list[str]) -> list[str]:
    """The log lines that report an error, oldest first; never empty."""
    said = [line.strip() for line in lines if line.strip()]
    words = ("error", "fail", "invalid", "inconsistent", "not supported", "require", "cannot", "mismatch")
    errors = [line for line in said if any(word in line.lower() for word in words)]
    return errors or said[-1:] or ["no reason given"]


def last_complaint(lines: list[str]) -> str:
    """The last log line that reports an error."""
    return complaints(lines)[-1]
