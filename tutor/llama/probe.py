"""A probe of the exact mode: are logits on this machine bit-identical however the work is batched?

The same sequences are computed alone on one thread, then in small chunks, on two threads, and all together in
mixed batches; every row of logits is compared with the first run. Grading relies on it, so it is measured.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.model import Model, file_digest

Rows = NDArray[np.float32]  # [decoded tokens, vocabulary]
VERSION = 2  # of the probe itself: results of another version are not reused
STEPS = 2
THREADED_STEPS = 1  # each decode on two threads may stall beside a busy neighbour
SMALL_CHUNK = 7
MIXED_CHUNK = 24
N_CTX = 256  # cells of one sequence
THREADED = 2  # the prompt that two threads compute: one is enough, and threads may have to share a core
PROMPTS = (
    "The capital of France is",
    "11, 21, 31, 41, 51,",
    "A page is a block of memory. " * 2,
    "Each token keeps one key and one value in every layer of the model. " * 4,
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`exact` is true when every logit was equal; `max_difference` is the largest distance of two logits.

    `differs` names the ways that changed a logit: "chunked", "two threads", "mixed batches".
    """

    exact: bool
    sequences: int
    rows: int
    max_difference: float
    differs: tuple[str, ...]
    seconds: float

    @property
    def summary(self) -> str:
        """One line, for the header of a trace."""
        if self.exact:
            return f"exact: {self.rows} rows of logits of {self.sequences} sequences, no bit differs"
        return f"not exact: {', '.join(self.differs)} change logits by up to {self.max_difference:.2g}"


def probe_cached(model: Model) -> ProbeResult:
    """The probe's result, run once for each model file, version of llama-cpp-python and CPU.

    Kept in the tutor's cache folder; a file there that cannot be used costs time only. Raises EngineError
    when the engine itself fails.
    """
    from tutor.resources import cache_dir

    path, key = cache_dir() / "probes.json", _key(model)
    known = _read(path)
    found = _parse(known.get(key))
    if found is None:
        found = probe(model)
        _write(path, {**known, key: asdict(found)})
    return found


def probe_known(model: Model) -> ProbeResult | None:
    """What an earlier probe found on this machine; None when there was none."""
    from tutor.resources import cache_dir

    return _parse(_read(cache_dir() / "probes.json").get(_key(model)))


def _key(model: Model) -> str:
    """Everything that may change the answer. The features of the CPU choose llama.cpp's kernels."""
    return "|".join(
        (
            file_digest(model.path),
            importlib.metadata.version("llama-cpp-python"),
            cpu_name(),
            model.lib.llama_print_system_info().decode("utf-8", "replace"),
            f"gpu {model.n_gpu_layers}",
            f"probe {VERSION}",
        )
    )


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _read(path: Path) -> dict[str, object]:
    try:
        known = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _parse(stored: object) -> ProbeResult | None:
    if not isinstance(stored, dict):
        return None
    try:
        return ProbeResult(**{**stored, "differs": tuple(stored["differs"])})
    except (TypeError, KeyError):
        return None


def _write(path: Path, known: dict[str, object]) -> None:
    """Write beside and rename. A folder that cannot be written costs time only."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(known), "utf-8")
        partial.replace(path)
    except OSError:
        return


def probe(model: Model) -> ProbeResult:
    """Run the probe (about 2 s). Raises EngineError when the engine itself fails."""
    start = time.perf_counter()
    prompts = [model.tokenize(text) for text in PROMPTS]
    with Context(model, ContextConfig(n_ctx=N_CTX)) as context:
        first = [_alone(context, prompt, len(prompt)) for prompt in prompts]
        chunked = [_alone(context, prompt, SMALL_CHUNK) for prompt in prompts]
        context.set_threads(2)
        threaded = _alone(context, prompts[THREADED], len(prompts[THREADED]), THREADED_STEPS)
    distances = {
        "chunked": _distance(first, chunked),
        "two threads": _distance([first[THREADED][: 1 + THREADED_STEPS]], [threaded]),
        "mixed batches": _distance(first, _together(model, prompts)),
    }
    return ProbeResult(
        exact=not any(distances.values()),
        sequences=len(prompts),
        rows=2 * sum(map(len, first)) + len(threaded),
        max_difference=max(distances.values()),
        differs=tuple(name for name, distance in distances.items() if distance),
        seconds=time.perf_counter() - start,
    )


def _distance(left: list[Rows], right: list[Rows]) -> float:
    """The largest absolute difference; rows of another number than expected count as infinitely far."""
    if [rows.shape for rows in left] != [rows.shape for rows in right]:
        return float("inf")
    return max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))


def _alone(context: Context, prompt: list[int], chunk: int, steps: int | None = None) -> Rows:
    """The logits of the end of the prompt, computed in chunks, and of `steps` (STEPS) greedy tokens."""
    kv.clear(context)
    batch = Batch(max(chunk, 1), 1)
    rows: list[NDArray[np.float32]] = []
    for start in range(0, len(prompt), chunk):
        part = prompt[start : start + chunk]
        batch.clear()
        batch.add_run(part, start, 0, start + len(part) == len(prompt))
        context.decode(batch)
    rows.append(context.logits(len(batch) - 1))
    for step in range(STEPS if steps is None else steps):
        batch.clear()
        batch.add(int(rows[-1].argmax()), len(prompt) + step, (0,), True)
        context.decode(batch)
        rows.append(context.logits(0))
    return np.stack(rows)


def _together(model: Model, prompts: list[list[int]]) -> list[Rows]:
    """All sequences at once: chunks of long prompts share a batch with tokens of those already decoding."""
    many = ContextConfig(n_ctx=N_CTX * len(prompts), n_seq_max=len(prompts))
    sequences = [list(prompt) for prompt in prompts]
    done = [0] * len(prompts)
    rows: list[list[NDArray[np.float32]]] = [[] for _ in prompts]
    batch = Batch(MIXED_CHUNK * len(prompts), 1)
    with Context(model, many) as context:
        while any(len(kept) <= STEPS for kept in rows):
            batch.clear()
            ends: dict[int, int] = {}
            for slot, ids in enumerate(sequences):
                part = ids[done[slot] : done[slot] + MIXED_CHUNK]
                if part and len(rows[slot]) <= STEPS:
                    complete = done[slot] + len(part) == len(ids)
                    index = batch.add_run(part, done[slot], slot, complete)
                    done[slot] += len(part)
                    if complete:
                        ends[slot] = index
            context.decode(batch)
            for slot, index in ends.items():
                rows[slot].append(context.logits(index))
                sequences[slot].append(context.argmax(index))
    return [np.stack(kept) for kept in rows]
