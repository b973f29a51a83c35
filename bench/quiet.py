"""How much of the machine others used while something was measured, from /proc (Linux), and small helpers."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
SPIN = "import sys; print(1, flush=True)\nwhile True: pass"


def machine_busy() -> float:
    """CPU seconds that all processes of the machine have used, stolen time included."""
    fields = [int(field) for field in Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / TICKS


def process_busy(pid: int) -> float:
    """CPU seconds of one process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_rss(pid: int) -> float:
    """Peak resident memory of a process, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


class Watch:
    """`others` is the share of all cores' time that processes other than ours used since the start."""

    def __init__(self, pids: Sequence[int] = ()) -> None:
        self.pids = (os.getpid(), *pids)
        self._before = self._read()

    def _read(self) -> tuple[float, float, float]:
        return time.perf_counter(), machine_busy(), sum(map(process_busy, self.pids))

    def others(self) -> float:
        before, now = self._before, self._read()
        wall, busy, ours = (b - a for a, b in zip(before, now, strict=True))
        return max(0.0, busy - ours) / (wall * (os.cpu_count() or 1))


@contextmanager
def busy_process() -> Iterator[int]:
    """A neighbour that spins on one core; gives its process id."""
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it spins from here on
            yield process.pid
        finally:
            process.kill()


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
