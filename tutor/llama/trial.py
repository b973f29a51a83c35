"""A trial of the engine, run as a child process: `python -m tutor.llama.trial MODEL [SECONDS]`.

Loads library and model, decodes for a second, and probes the exact mode. Each stage that works prints one
JSON line, so that the parent knows how far a process came that crashed inside C code.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tutor.llama import kv, library
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.errors import EngineError
from tutor.llama.model import Model
from tutor.llama.probe import probe_cached

PROMPT = "Once upon a time, there was"
N_CTX = 512
THREADS = (1, 2)


def _say(stage: str, **values: object) -> None:
    print(json.dumps({"stage": stage, **values}), flush=True)


def decode_for(model: Model, seconds: float, n_threads: int) -> tuple[int, float]:
    """Greedy decode at batch size 1; return (tokens, seconds spent on them)."""
    ids = model.tokenize(PROMPT)
    batch = Batch(N_CTX, 1)
    with Context(model, ContextConfig(n_ctx=N_CTX, n_threads=n_threads)) as context:
        batch.add_run(ids, 0, 0, True)
        context.decode(batch)
        token, pos = context.argmax(len(ids) - 1), len(ids)
        start = time.perf_counter()
        made, spent = 0, 0.0
        while spent < seconds:
            if pos == context.n_ctx_seq:
                kv.seq_rm(context, 0, len(ids), -1)
                pos = len(ids)
            batch.clear()
            batch.add(token, pos, (0,), True)
            context.decode(batch)
            token, pos, made = context.argmax(0), pos + 1, made + 1
            spent = time.perf_counter() - start
    return made, spent


def run(path: str, seconds: float) -> int:
    """All stages; returns the exit code."""
    try:
        lib = library.load()
        _say("library", gpu_offload=bool(lib.llama_supports_gpu_offload()))
        with Model.load(Path(path)) as model:
            _say("model", name=model.name)
            speeds = []
            for n_threads in THREADS:
                tokens, spent = decode_for(model, seconds / len(THREADS), n_threads)
                speeds.append([n_threads, tokens / spent])
            _say("decode", speeds=speeds)
            found = probe_cached(model)
            _say("exactness", exact=found.exact, summary=found.summary)
    except EngineError as error:
        _say("error", sentence=error.sentence, way_out=error.way_out)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0))
