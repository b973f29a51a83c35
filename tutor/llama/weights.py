"""The model's weights in another precision, made once by llama.cpp's own quantiser and kept in the cache.

Requantising takes about a second for the bundled model. It cannot bring back what the shipped Q4_1 lost; it
shows what precision costs in speed, memory and quality.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from tutor.llama import gguf_file, library
from tutor.llama.errors import BrokenModel, EngineFailed, EngineMisuse, ModelNotFound
from tutor.llama.model import file_digest

WeightKind = Literal["shipped", "q8_0", "q4_0"]

# llama_ftype numbers, https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h
FILE_TYPES: dict[str, int] = {"q4_0": 2, "q8_0": 7}
LOCK_SECONDS = 300.0
WAY_OUT = "Free some disk space, or set TUTOR_CACHE to another folder."


def weights(path: Path, kind: WeightKind) -> Path:
    """The file that holds the weights of the model at `path` as `kind`: itself for "shipped".

    Raises EngineMisuse for an unknown kind, and what `requantize` raises.
    """
    return path if kind == "shipped" else requantize(path, kind)


def requantize(model_path: Path, kind: WeightKind, n_threads: int = 2) -> Path:
    """Return the model with its matrices as `kind` ("q8_0" or "q4_0"), made now or found in the cache.

    The cached file is named after the SHA-256 of the source and the kind; it is made beside and renamed, by
    one process at a time, and made again when it no longer has the digest that it was made with.
    Raises EngineMisuse (kind), ModelNotFound, BrokenModel (source), EngineFailed (disk, quantiser) or
    EngineUnavailable.
    """
    if kind not in FILE_TYPES:
        raise EngineMisuse(
            f"Weights cannot be made {kind!r}.", f"Kinds: {', '.join(get_args(WeightKind))} (as they came)."
        )
    if not model_path.is_file():
        raise ModelNotFound(f"The model file {model_path} does not exist.", "Correct the path.")
    gguf_file.peek(model_path)
    from tutor.resources import cache_dir

    folder = cache_dir() / "models"
    target = folder / f"{model_path.stem}.{file_digest(model_path)[:16]}.{kind}.gguf"
    if _is_whole(target):
        return target
    gguf_file.read_header(model_path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_suffix(".lock")):
            if not _is_whole(target):  # another process may have made it while this one waited
                _make(model_path, target, kind, n_threads)
    except OSError as error:
        raise EngineFailed(
            f"The {kind} weights cannot be written to {folder}: {error.strerror or error}.", WAY_OUT
        ) from error
    return target


def _seal(target: Path) -> Path:
    """Holds the digest that a finished file had."""
    return target.with_suffix(".sha256")


def _is_whole(target: Path) -> bool:
    try:
        return _seal(target).read_text("ascii") == file_digest(target)
    except (OSError, UnicodeDecodeError):
        return False


def _make(source: Path, target: Path, kind: WeightKind, n_threads: int) -> None:
    """Quantise into a file beside the target, check it, seal it, rename it. The lock is held."""
    lib = library.load()
    partial = target.with_suffix(".partial")
    params = lib.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[kind]
    params.allow_requantize = True
    params.nthread = n_threads
    try:
        with library.captured_log() as lines:
            code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(partial), params)
        if code != 0:
            raise EngineFailed(
                f"llama.cpp cannot make {kind} weights of {source}: {library.last_complaint(lines)}.", WAY_OUT
            )
        _check_written(partial, kind)
        _seal(target).write_text(file_digest(partial), "ascii")
        partial.replace(target)
        file_digest(target)  # remembered from now on
    finally:
        partial.unlink(missing_ok=True)


def _check_written(partial: Path, kind: WeightKind) -> None:
    try:
        gguf_file.read_header(partial)
    except BrokenModel as error:
        raise EngineFailed(f"The {kind} weights were not written whole.", WAY_OUT) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time makes a file. Raises EngineFailed when another takes too long."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=LOCK_SECONDS):
            yield
    except Timeout as error:
        raise EngineFailed(
            f"Another process has been making these weights for {LOCK_SECONDS:.0f} s.",
            f"Wait for it, or remove {path}.",
        ) from error
