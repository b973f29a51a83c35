"""`tutor bench` against the trace of the same run taken inside the server.

`tutor serve --trace` and `tutor bench` run as commands, in processes of their own. Both sides of a row have
one definition: TTFT begins when the request is sent (client) or when its handler starts (server) and ends at
the first token that makes text; ITL is the gap between two tokens that make text; E2E ends at the last token;
TPOT is (E2E - TTFT) / (n - 1). The server's times are those at which a step's tokens came out of the engine.
Percentiles are nearest-rank. The goal: every one within 3 %.

With --client NAME=PROGRAM another public client is compared instead, by its own figures, under its own
definitions. Both see the same run (same_run.py). The goal there: within 5 %.

Run: python bench/bench_agreement.py [-n N] [-c C] [--client aiperf=PATH] [-- OPTIONS OF SERVE]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agreement_clients import CLIENTS, COLUMNS, Figures, load_of, prompts, read_tutor
from quiet import Watch
from same_run import SameRun, relaying

from tutor.metrics.summary import percentile
from tutor.trace import events as ev
from tutor.trace.codec import read_trace

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)
GOAL, CLIENT_GOAL = 0.03, 0.05
NAMES = ("TTFT", "TPOT", "ITL", "E2E")


@dataclass(frozen=True)
class Load:
    """What both clients are asked for: lengths in tokens."""

    requests: int
    concurrency: int
    prompt: int
    answer: int
    seed: int

    def options(self) -> list[str]:
        return [
            "-n", str(self.requests), "-c", str(self.concurrency), "-i", str(self.prompt),
            "-o", str(self.answer), "--seed", str(self.seed), "--no-cache-probe",
            "--percentiles", "50,90,95,99",
        ]  # fmt: skip


@dataclass
class Served:
    url: str
    trace: Path
    process: subprocess.Popen[str]

    def engine(self) -> int:
        """The process id of the engine, the server's only child."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text("ascii").split()
        return int(found[0])

    def pin(self) -> None:
        """The engine's threads to the first core, this process and the server's to the others.

        A process that wakes up on a core where the engine computes waits for up to one slice of the
        scheduler (3 ms on Linux), which is more than the gaps can bear.
        """
        first, *others = sorted(os.sched_getaffinity(0))
        for pid, cores in ((self.engine(), [first]), (self.process.pid, others), (os.getpid(), others)):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), cores)

    def stop(self) -> None:
        """End it as Ctrl-C does; the trace is whole afterwards."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


@contextmanager
def serving(slots: int, *more: str) -> Iterator[Served]:
    """`tutor serve` with so many slots, without prefix cache: no request may profit from one before it."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        command = [
            sys.executable, "-m", "tutor", "serve", "--port", "0", "--max-num-seqs", str(slots),
            "--no-prefix-cache", "--trace", str(trace), *more,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = re.search(r"http://[\d.:]+", process.stdout.readline())
            if not found:
                raise SystemExit("tutor serve did not start.")
            served = Served(found[0], trace, process)
            try:
                yield served
            finally:
                served.stop()


def run_tutor(url: str, load: Load) -> dict[str, Any]:
    """The JSON of `tutor bench` with each request's times."""
    command = [sys.executable, "-m", "tutor", "bench", url, *load.options(), "--json", "--details"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"tutor bench ended with {ran.returncode}: {ran.stderr or ran.stdout[-500:]}")
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def client_values(told: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds, by NAMES."""
    ttfts, ends, counts, gaps = (told[key] for key in ("ttfts", "latencies", "output_lens", "itls"))
    return {
        "TTFT": ttfts,
        "E2E": ends,
        "TPOT": [(e - t) / (n - 1) for t, e, n in zip(ttfts, ends, counts, strict=True)],
        "ITL": [gap for one in gaps for gap in one],
    }


def server_values(trace: Path, requests: int) -> dict[str, list[float]]:
    """Seconds, by NAMES, of the last `requests` requests of the trace."""
    arrived: dict[str, float] = {}
    tokens: dict[str, list[tuple[float, bool]]] = {}
    for record in read_trace(trace).records:
        match record.event:
            case ev.RequestArrived(request_id):
                arrived[request_id] = record.ts
                tokens[request_id] = []
            case ev.TokensEmitted(request_id, token_ids, text):
                tokens[request_id] += [(record.ts, bool(text))] * len(token_ids)
            case _:
                pass
    values: dict[str, list[float]] = {name: [] for name in NAMES}
    for request_id in list(arrived)[-requests:]:
        emitted = tokens[request_id]
        shown = [at for at, has_text in emitted if has_text]
        last, start = emitted[-1][0], arrived[request_id]
        values["TTFT"].append(shown[0] - start)
        values["E2E"].append(last - start)
        values["TPOT"].append((last - shown[0]) / (len(emitted) - 1))
        values["ITL"] += [b - a for a, b in itertools.pairwise(shown)]
    return values


def compare(client: dict[str, list[float]], server: dict[str, list[float]]) -> float:
    """Print every percentile of both; returns the largest difference as a share."""
    worst = 0.0
    for name in NAMES:
        mine, theirs = client[name], server[name]
        print(f"{name}, ms ({len(mine):,} and {len(theirs):,} values)")
        rows = [("mean", sum(mine) / len(mine), sum(theirs) / len(theirs))]
        rows += [(f"P{q}", percentile(mine, q), percentile(theirs, q)) for q in PERCENTILES]
        for label, seen, true in rows:
            off = seen / true - 1
            worst = max(worst, abs(off))
            verdict = "" if abs(off) <= GOAL else "  missed"
            print(f"  {label:<5}{seen * 1e3:10.2f}{true * 1e3:10.2f}{off:+8.2%}{verdict}")
    return worst


def agreement(load: Load, more: Sequence[str], pin: bool) -> float:
    with serving(load.concurrency, *more) as served:
        if pin:
            served.pin()
        watch = Watch([served.process.pid, served.engine()])
        told = run_tutor(served.url, load)
        others = watch.others()
        served.stop()
        server = server_values(served.trace, load.requests)
    print(f"{load.requests} requests, {load.concurrency} at a time, {load.prompt} + {load.answer} tokens")
    print(f"{'':7}{'client':>10}{'server':>10}")
    worst = compare(client_values(told), server)
    client = told["tutor"]["client"]
    print(
        f"client: {client['cpu_share']:.0%} of a core, its loop late by "
        f"{client['lag_p99'] * 1e3:.1f} ms (P99)"
        f"; others used {others:.0%} of the machine"
    )
    print(f"largest difference {worst:.2%} (goal {GOAL:.0%}, {'met' if worst <= GOAL else 'missed'})")
    return worst


def same_run(name: str, program: Path, load: Load, more: Sequence[str]) -> float:
    """Both clients see one run; print the figures of both. Returns the largest difference as a share."""
    asked = load_of(load.requests, load.concurrency, load.prompt, load.answer, load.seed)
    with serving(load.concurrency, *more) as served, ThreadPoolExecutor(2) as pool:
        run = SameRun(served.url, asyncio.run(prompts(served.url, asked))[1], load.concurrency)
        with relaying(run) as url:
            one = pool.submit(CLIENTS[name], program, url, asked)
            two = pool.submit(run_tutor, url, load)
            for ended in as_completed((one, two)):
                ended.result()
    theirs, ours = one.result(), read_tutor(two.result())
    sooner = {q: percentile(run.waits, q) * 1e3 for q in (50, 95, 100)}
    print(
        f"one run of {load.requests} requests seen by both, {load.concurrency} at a time, {load.prompt} + "
        f"{load.answer} tokens; {theirs.failed} failed for {name}\n"
        f"one asked sooner than the other by {sooner[50]:.1f} ms (P50), {sooner[95]:.1f} (P95), "
        f"{sooner[100]:.1f} (most)"
    )
    return compare_figures(name, ours, theirs)


def compare_figures(name: str, ours: Figures, theirs: Figures) -> float:
    """Print both; returns the largest difference as a share."""
    print(f"{'':18}{'tutor':>10}{name:>10}")
    rows = [
        (f"{row} {column}, ms", *(side.latencies[row][column] for side in (ours, theirs)))
        for row in theirs.latencies
        for column in COLUMNS
    ]
    rows.append(("output tokens/s", ours.speed, theirs.speed))
    worst = 0.0
    for label, mine, other in rows:
        off = mine / other - 1
        worst = max(worst, abs(off))
        verdict = "" if abs(off) <= CLIENT_GOAL else "  missed"
        print(f"{label:<18}{mine:10.2f}{other:10.2f}{off:+8.2%}{verdict}")
    met = "met" if worst <= CLIENT_GOAL else "missed"
    print(f"largest difference {worst:.2%} (goal {CLIENT_GOAL:.0%}, {met})")
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", "--requests", type=int, default=64)
    parser.add_argument("-c", "--concurrency", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=48, help="tokens")
    parser.add_argument("--answer", type=int, default=64, help="tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pin", action="store_true", help="engine and clients on cores of their own")
    parser.add_argument("server", nargs="*", help="more options of tutor serve, after --")
    parser.add_argument("--client", metavar="NAME=PROGRAM", help=f"one of {', '.join(CLIENTS)}")
    given = parser.parse_args()
    load = Load(given.requests, given.concurrency, given.prompt, given.answer, given.seed)
    if given.client is None:
        return 0 if agreement(load, given.server, given.pin) <= GOAL else 1
    name, _, program = given.client.partition("=")
    if name not in CLIENTS or not Path(program).is_file():
        parser.error(f"--client is NAME=PROGRAM, NAME one of {', '.join(CLIENTS)}")
    return 0 if same_run(name, Path(program), load, given.server) <= CLIENT_GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
