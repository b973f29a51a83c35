"""Fixed thread counts against the adaptive choice, alone and beside a process that spins on one core.

Greedy decode of the bundled model, tokens a second. Ways and situations alternate in every round; each
measurement starts with a warm-up, in which the adaptive choice has to notice what changed. "others" is the
share of the machine that processes outside this benchmark used: with more than a few percent the situation
"alone" was not alone, and the figures compare the ways only. Run: python bench/threads.py [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, nullcontext

from quiet import Watch, busy_process, median

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.model import Model, find_model
from tutor.llama.threads import ThreadGovernor, idle_seconds

PROMPT = "Once upon a time, there was"
CELLS = 256  # of one slot
BATCHES = (1, 8)
WARM_UP = 1.5
SITUATIONS = ("alone", "beside a busy process")
Key = tuple[str, int, str]


class Decoder:
    """A context with `size` slots that decode greedily; an emptied slot starts again at its prompt."""

    def __init__(self, model: Model, size: int) -> None:
        self.context = Context(model, ContextConfig(n_ctx=CELLS * size, n_seq_max=size, n_batch=CELLS))
        self.size = size
        self._prompt = model.tokenize(PROMPT)
        self._batch = Batch(CELLS, 1)
        self._restart()

    def _restart(self) -> None:
        kv.clear(self.context)
        self._batch.clear()
        ends = [self._batch.add_run(self._prompt, 0, slot, True) for slot in range(self.size)]
        self.context.decode(self._batch)
        self._tokens = [self.context.argmax(end) for end in ends]
        self._pos = len(self._prompt)

    def step(self) -> None:
        if self._pos == self.context.n_ctx_seq:
            self._restart()
        self._batch.clear()
        for slot, token in enumerate(self._tokens):
            self._batch.add(token, self._pos, (slot,), True)
        self.context.decode(self._batch)
        self._tokens = [self.context.argmax(slot) for slot in range(self.size)]
        self._pos += 1


def measure(decoder: Decoder, way: str, governor: ThreadGovernor, seconds: float) -> float:
    """Tokens a second, the warm-up apart. `way` is a number of threads, or "adaptive"."""
    if way != "adaptive":
        decoder.context.set_threads(int(way))
        governor.current = int(way)
    made, started = 0, time.perf_counter()
    warm = started + WARM_UP
    while (now := time.perf_counter()) < warm + seconds:
        if now < warm:
            made, started = 0, now
        with governor.step(decoder.size) if way == "adaptive" else nullcontext():
            decoder.step()
        made += decoder.size
    return made / (time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, all ways in each (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of a measurement (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="the largest count (default 2)")
    parser.add_argument("--limit", type=float, default=0.9, help="exit 1 below this ratio to the best fixed")
    args = parser.parse_args()
    ways = [*(str(count) for count in range(1, args.threads + 1)), "adaptive"]
    speeds: dict[Key, list[float]] = {}
    others: dict[Key, list[float]] = {}
    with Model.load(find_model()) as model:
        decoders = {size: Decoder(model, size) for size in BATCHES}
        governors = {
            size: ThreadGovernor(args.threads, decoder.context.set_threads, time.perf_counter, idle_seconds)
            for size, decoder in decoders.items()
        }
        for index in range(args.rounds):
            for situation in SITUATIONS:
                with ExitStack() as stack:
                    pids = [stack.enter_context(busy_process())] if situation != "alone" else []
                    for size in BATCHES:
                        # another way first in each round
                        for way in ways[index % len(ways) :] + ways[: index % len(ways)]:
                            watch = Watch(pids)
                            speed = measure(decoders[size], way, governors[size], args.seconds)
                            key = (situation, size, way)
                            speeds.setdefault(key, []).append(speed)
                            others.setdefault(key, []).append(watch.others())
    return report(ways, speeds, others, args.limit)


def report(
    ways: list[str], speeds: dict[Key, list[float]], others: dict[Key, list[float]], limit: float
) -> int:
    """Print the table. The ratio is the median over rounds of adaptive / better fixed count of that round."""
    rounds = len(next(iter(speeds.values())))
    print(f"decode, tokens/s, medians of {rounds} rounds (lowest to highest); others: share of all cores")
    failed = False
    for situation in SITUATIONS:
        for size in BATCHES:
            print(f"\n{situation}, batch {size}")
            rows = {way: speeds[situation, size, way] for way in ways}
            best = max(median(rows[way]) for way in ways[:-1])
            for way, values in rows.items():
                name = way if way == "adaptive" else f"{way} thread{'s' * (way != '1')}"
                share = median(others[situation, size, way])
                print(
                    f"  {name:10}{median(values):8.1f}  ({min(values):6.1f} to {max(values):6.1f})"
                    f"{median(values) / best:7.2f}x of the best fixed   others {share:4.0%}"
                )
            fixed = [max(pair) for pair in zip(*(rows[way] for way in ways[:-1]), strict=True)]
            paired = [a / b for a, b in zip(rows["adaptive"], fixed, strict=True)]
            print(f"  adaptive / better fixed count of the same round: {median(paired):.2f}x")
            failed |= median(rows["adaptive"]) < limit * best
    print(f"\n{'BELOW' if failed else 'at or above'} {limit}x of the best fixed count")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
