"""How long the start-up probe of exactness takes, fresh, in this process with the model loaded.

Runs while others used more than 6% of the CPU are shown but not judged. Run: python bench/probe.py [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import sys

from quiet import Watch

from tutor.llama.model import Model, find_model
from tutor.llama.probe import ProbeResult, probe

LIMIT = 3.0  # seconds, when the machine is quiet
NOISE = 0.06


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5, help="quiet runs that are wanted (default 5)")
    wanted = parser.parse_args().runs
    quiet: list[float] = []
    noisy: list[float] = []
    result: ProbeResult | None = None
    with Model.load(find_model()) as model:
        while len(quiet) < wanted and len(quiet) + len(noisy) < 3 * wanted:
            watch = Watch()
            result = probe(model)
            (quiet if watch.others() <= NOISE else noisy).append(result.seconds)
    if result is None:
        raise SystemExit("Nothing was run; give --runs 1 or more.")
    print(f"probe: {result.summary}")
    for name, values in (("quiet", quiet), (f"others above {NOISE:.0%}", noisy)):
        if values:
            print(
                f"{name:18}{statistics.median(values):6.2f} s median, {min(values):.2f} to {max(values):.2f},"
                f" {len(values)} runs"
            )
    if not quiet:
        print(f"no quiet run, so the limit of {LIMIT} s was not judged")
        return 0
    met = statistics.median(quiet) <= LIMIT
    print(f"{'at most' if met else 'ABOVE'} {LIMIT} s when quiet")
    return 0 if met and result.exact else 1


if __name__ == "__main__":
    sys.exit(main())
