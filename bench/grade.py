"""From a saved file to the verdict: a warm judge, against a cold `tutor check` in the same run.

    python bench/grade.py [--exercise kv-math] [--runs 20] [--cold-runs 5] [--pause 1.0]

Warm: the judge has loaded its model and checked once (as in the TUI or `watch`); the clock runs from the
moment the file is written to the verdict. Between two saves there is a pause, as there is with a person;
the judge uses it to start the next guest (with --pause 0 its start is part of the figure). Cold: `tutor
check` as a new process each time, with the same warm reference cache. `model` is the part that llama.cpp
computed. Ratio: to the cold median.
"""

from __future__ import annotations

import argparse
import asyncio
import os
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
from tutor.grading.exercise import Exercise, find_exercise  # noqa: E402
from tutor.grading.verdict import from_json  # noqa: E402


class Sample(NamedTuple):
    """Seconds from save to verdict, and the model's part of them."""

    total: float
    model: float


async def warm(exercise: Exercise, path: Path, text: str, runs: int, pause: float) -> list[Sample]:
    """Save and check `runs` times with one judge, after one run that is not counted."""
    client = JudgeClient()
    samples = []
    try:
        await client.start()
        for number in range(runs + 1):
            await asyncio.sleep(pause)
            started = time.perf_counter()
            path.write_text(f"{text}\n# save {number}\n", encoding="utf-8")
            verdict = await client.verdict(exercise.id, path)
            samples.append(Sample(time.perf_counter() - started, verdict.model_seconds))
            if not verdict.passed:
                raise SystemExit(f"the solution of {exercise.id} does not pass: {verdict}")
    finally:
        await client.close()
    return samples[1:]


def cold(exercise: Exercise, path: Path, runs: int) -> list[Sample]:
    """`tutor check` as a process of its own."""
    samples = []
    command = [sys.executable, "-m", "tutor", "check", exercise.id, "--json", "--file", str(path)]
    with tempfile.TemporaryDirectory() as data:
        for _ in range(runs):
            started = time.perf_counter()
            done = subprocess.run(
                command, cwd=ROOT, env={**os.environ, "TUTOR_DATA": data}, capture_output=True, check=True
            )
            verdict = from_json(done.stdout)
            samples.append(Sample(time.perf_counter() - started, verdict.model_seconds))
    return samples


def report(rows: dict[str, list[Sample]]) -> None:
    """A table with medians, 95th percentiles and the ratio to the last row."""
    base = statistics.median(sample.total for sample in list(rows.values())[-1])
    print(f"{'':<22}{'runs':>5}{'median':>10}{'p95':>10}{'model':>10}{'ratio':>8}")
    for name, samples in rows.items():
        totals = sorted(sample.total for sample in samples)
        median = statistics.median(totals)
        p95 = totals[min(len(totals) - 1, round(0.95 * len(totals)))]
        model = statistics.median(sample.model for sample in samples)
        cells = (f"{median * 1e3:.0f} ms", f"{p95 * 1e3:.0f} ms", f"{model * 1e3:.0f} ms")
        print(f"{name:<22}{len(samples):>5}" + "".join(f"{cell:>10}" for cell in cells), end="")
        print(f"{median / base:>8.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exercise", default="kv-math")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--cold-runs", type=int, default=5)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two saves")
    options = parser.parse_args()
    exercise = find_exercise(options.exercise)
    text = exercise.solution.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / exercise.file
        warm_samples = asyncio.run(warm(exercise, path, text, options.runs, options.pause))
        cold_samples = cold(exercise, path, options.cold_runs)
    print(f"exercise {exercise.id}: saved file to verdict")
    report({"warm judge": warm_samples, "cold `tutor check`": cold_samples})


if __name__ == "__main__":
    main()
