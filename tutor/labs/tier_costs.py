"""What loading a saved sequence and computing it anew cost on this machine, measured before a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.context import Context
from tutor.serving.shelves import Shelf
from tutor.serving.tier_policy import LinearCosts, Link
from tutor.serving.tier_types import Codec, CodecError

PROBES = 2  # the first touches memory for the first time; the faster one counts
KEY = 0  # a shelf's keys begin at 1


def measured_costs(context: Context, tokens: list[int], codec: Codec, disk: Shelf) -> LinearCosts:
    """Prices for tiers "warm" and "cold", from one sequence that is computed, saved and loaded again.

    `tokens` go through slot 0, which is empty before and after. A link's rate counts bytes as stored, and
    its time has the codec's decoding, the reading and llama.cpp's restoring in it. Raises EngineError.
    """
    batch = Batch(len(tokens), 1)
    batch.add_run(tokens, 0, 0, True)

    def compute() -> None:
        kv.seq_rm(context, 0)
        context.decode(batch)

    prefill = _fastest(compute)
    blob = kv.save(context, 0)
    data = _encoded(codec, blob)
    disk.put(KEY, data)
    restore = _fastest(lambda: kv.restore(context, 0, blob))
    decode = _fastest(lambda: _decoded(codec, data, blob))
    read = _fastest(lambda: disk.get(KEY))
    disk.drop(KEY)
    kv.seq_rm(context, 0)
    links = {
        "warm": Link(0.0, len(data) / (restore + decode)),
        "cold": Link(0.0, len(data) / (restore + decode + read)),
    }
    return LinearCosts(links, prefill / len(tokens))


def _encoded(codec: Codec, blob: bytes) -> bytes:
    try:
        return codec.encode(blob)
    except CodecError:  # a cache type that it does not know: the tiers keep such bytes as they are
        return blob


def _decoded(codec: Codec, data: bytes, blob: bytes) -> bytes:
    return data if data is blob else codec.decode(data)


def _fastest(action: Callable[[], object]) -> float:
    """Seconds of the fastest of a few calls."""
    seconds = []
    for _ in range(PROBES):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return max(min(seconds), 1e-9)
