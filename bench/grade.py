"""From a saved file to the verdict, for every exercise: the share of the model, the code and the grader.

    python bench/grade.py [--exercise ID]... [--runs 20] [--pause 0.7] [--cold-runs 3] [--json FILE]

Warm: a judge that has loaded its model and checked the file once, as in the TUI and `tutor watch`. The clock
runs from the moment the file is written to the verdict. Between two saves there is a pause, as there is with
a person; the judge uses it to start the next guest (with --pause 0 its start is part of the figure). `model`
is what llama.cpp computed, `code` what the learner's file (here the solution) took by the guest's own clock,
its import included. What is left is our overhead: reading, starting, messages, what check.py compares.
The goal is 150 ms at the 95th percentile over all exercises. Baseline: `tutor check` as a new process.

Memory: `tutor check --all` on all solutions as a process of its own; the peak of the proportional set size
(PSS: shared pages counted once) over it and all its descendants, sampled every 20 ms. The goal is 600 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tutor.grading.client import JudgeClient  # noqa: E402
from tutor.grading.exercise import Exercise, exercise_ids, find_exercise  # noqa: E402
from tutor.grading.verdict import from_json  # noqa: E402

GOAL_MS, GOAL_MB = 150.0, 600.0
SAMPLE_SECONDS = 0.02


class Sample(NamedTuple):
    """Seconds from save to verdict, and the model's and the learner's part of them."""

    total: float
    model: float
    code: float

    @property
    def overhead(self) -> float:
        return self.total - self.model - self.code


async def warm(exercises: list[Exercise], folder: Path, runs: int, pause: float) -> dict[str, list[Sample]]:
    """Save and check each exercise `runs` times with one judge, after one run that is not counted."""
    client = JudgeClient()
    samples: dict[str, list[Sample]] = {}
    try:
        await client.start()
        for exercise in exercises:
            found = [await save_and_check(client, exercise, folder, n, pause) for n in range(runs + 1)]
            samples[exercise.id] = found[1:]
    finally:
        await client.close()
    return samples


async def save_and_check(
    client: JudgeClient, exercise: Exercise, folder: Path, number: int, pause: float
) -> Sample:
    """One save of the solution, with a change that makes it another text."""
    path = folder / exercise.file
    text = exercise.solution.read_text(encoding="utf-8")
    await asyncio.sleep(pause)
    started = time.perf_counter()
    path.write_text(f"{text}\n# save {number}\n", encoding="utf-8")
    verdict = await client.verdict(exercise.id, path)
    total = time.perf_counter() - started
    if not verdict.passed:
        raise SystemExit(f"the solution of {exercise.id} does not pass: {verdict}")
    return Sample(total, verdict.model_seconds, verdict.code_seconds)


def cold(exercise: Exercise, folder: Path, runs: int) -> list[float]:
    """Seconds of `tutor check` as a process of its own, with the same stored references."""
    command = [sys.executable, "-m", "tutor", "check", exercise.id, "--json", "--file"]
    command.append(str(folder / exercise.file))
    seconds = []
    with tempfile.TemporaryDirectory() as data:
        for _ in range(runs):
            started = time.perf_counter()
            environment = {**os.environ, "TUTOR_DATA": data}
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
            seconds.append(time.perf_counter() - started)
            from_json(done.stdout)
    return seconds


def peak_of_check_all(exercises: list[Exercise]) -> float:
    """Peak PSS in MB of `tutor check --all` on all solutions, over the whole process tree."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "work"
        work.mkdir()
        for exercise in exercises:
            shutil.copy(exercise.solution, work / exercise.file)
        environment = {**os.environ, "TUTOR_DATA": scratch, "TUTOR_WORKSPACE": str(work)}
        command = [sys.executable, "-m", "tutor", "check", "--all"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(pss_kb(pid) for pid in tree(process.pid)))
            time.sleep(SAMPLE_SECONDS)
        if process.returncode != 0:
            raise SystemExit(f"`tutor check --all` ended with {process.returncode}")
    return peak * 1024 / 1e6


def tree(root: int) -> set[int]:
    """A process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it ended meanwhile
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def pss_kb(pid: int) -> int:
    """The proportional set size; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def p95(values: list[float]) -> float:
    """The smallest value that at least 95 of 100 do not exceed."""
    ordered = sorted(values)
    return ordered[-(-95 * len(ordered) // 100) - 1]


def report(samples: dict[str, list[Sample]], colds: dict[str, list[float]]) -> dict[str, float | str]:
    """Print the table; the sums as a dict."""
    print(f"{'exercise':<16}{'saves':>6}{'median':>9}{'p95':>9}{'model':>9}{'code':>9}", end="")
    print(f"{'overhead':>10}{'its p95':>9}{'cold':>9}{'ratio':>7}")
    for ident, found in samples.items():
        total, over = [s.total for s in found], [s.overhead for s in found]
        parts = [statistics.median(total), p95(total), statistics.median(s.model for s in found)]
        parts += [statistics.median(s.code for s in found), statistics.median(over), p95(over)]
        cells = "".join(f"{part * 1e3:>{9 + (place == 4)}.0f}" for place, part in enumerate(parts))
        base = statistics.median(colds[ident]) if colds.get(ident) else 0.0
        beside = f"{base * 1e3:>9.0f}{parts[0] / base:>7.2f}" if base else ""
        print(f"{ident:<16}{len(found):>6}{cells}{beside}")
    worst = max(samples, key=lambda ident: p95([s.overhead for s in samples[ident]]))
    overall = p95([s.overhead for found in samples.values() for s in found]) * 1e3
    worst_ms = p95([s.overhead for s in samples[worst]]) * 1e3
    print(f"all in ms. Overhead at P95 over all saves: {overall:.0f} ms (goal: at most {GOAL_MS:.0f} ms)")
    print(f"worst exercise: {worst}, {worst_ms:.0f} ms at P95")
    return {"overhead_p95_ms": round(overall, 1), "worst": worst, "worst_p95_ms": round(worst_ms, 1)}


def main() -> int:
    """Measure and print; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exercise", action="append", help="only this one; may be repeated (default: all)")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--cold-runs", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.7, help="seconds between two saves")
    parser.add_argument("--json", type=Path, help="also write the sums there")
    options = parser.parse_args()
    exercises = [find_exercise(ident) for ident in options.exercise or exercise_ids()]
    with tempfile.TemporaryDirectory() as folder:
        samples = asyncio.run(warm(exercises, Path(folder), options.runs, options.pause))
        colds = {item.id: cold(item, Path(folder), options.cold_runs) for item in exercises}
    sums = report(samples, colds)
    peak = peak_of_check_all(exercises)
    print(f"peak memory of `tutor check --all`: {peak:.0f} MB PSS (goal: at most {GOAL_MB:.0f} MB)")
    if options.json:
        options.json.write_text(json.dumps({**sums, "check_all_peak_mb": round(peak, 1)}) + "\n")
    return int(float(sums["overhead_p95_ms"]) > GOAL_MS or peak > GOAL_MB)


if __name__ == "__main__":
    sys.exit(main())
