# exercise: prefill-decode
# unusual: all passes are planned before the first one runs; trace entries are NamedTuples; a namespace
from collections import deque
from itertools import chain, islice, repeat
from statistics import fmean
from types import SimpleNamespace
from typing import NamedTuple


class Pass(NamedTuple):
    phase: str
    num_tokens: int
    num_outputs: int


def run(engine, prompt, n_new, n_batch):
    full, short = divmod(len(prompt), n_batch)
    sizes = [n_batch] * full + [short] * (short > 0)
    plan = [Pass("prefill", size, 0) for size in sizes[:-1]] + [Pass("prefill", sizes[-1], 1)]
    plan += repeat(Pass("decode", 1, 1), n_new - 1)
    queue, position, tokens = deque(prompt), 0, []
    for each in plan:
        ids = [queue.popleft() for _ in range(each.num_tokens)]
        marks = [i == each.num_tokens - 1 and each.num_outputs == 1 for i in range(each.num_tokens)]
        found = engine.decode(ids, list(islice(range(position, position + n_batch), len(ids))), marks)[-1]
        position += len(ids)
        if found is not None:
            tokens.append(found)
            queue.append(found)
    return tuple(tokens), plan


def split(arrived, started, chunks, num_prompt, num_cached):
    phases = SimpleNamespace()
    phases.ttft = phases.prefill_tps = phases.tpot = phases.decode_tps = phases.e2e = None
    phases.queue, phases.itl = started - arrived, ()
    stamps = list(chain.from_iterable(repeat(seconds, count) for seconds, count in chunks))
    if stamps:
        phases.ttft, phases.e2e = min(stamps) - arrived, max(stamps) - arrived
        phases.prefill_tps = (num_prompt - num_cached) / (phases.ttft - phases.queue)
    if stamps[1:]:
        phases.itl = tuple(map(float.__sub__, stamps[1:], stamps))
        phases.tpot = fmean(phases.itl)
        phases.decode_tps = phases.tpot**-1
    return phases
