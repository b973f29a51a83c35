"""What a token's choice costs: each filter on real logits of the bundled model, beside a plain full sort.

The plain column sorts the whole vocabulary, whether a filter needs it or not, and draws nothing; both must
keep the same tokens. Rounds take turns; medians. Run: python bench/sampler.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tutor.llama.reference import ReferenceModel
from tutor.llama.sampler import distribution, draw, rng_for
from tutor.serving.sampling import SamplingParams

TEXTS = ("Once upon a time", "The capital of France is", "In 1969, the first human", "def f(x):")
SETTINGS = (
    SamplingParams(),
    SamplingParams(1.0, top_k=40),
    SamplingParams(1.0, top_p=0.9),
    SamplingParams(1.0, top_p=0.99),
    SamplingParams(1.0, top_p=0.9999),
    SamplingParams(1.0, top_p=1 - 1e-9),
    SamplingParams(1.0, min_p=0.05),
    SamplingParams(0.8, top_k=40, top_p=0.95, min_p=0.05),
)
LIMIT = 0.5  # of the plain way, at top-p 0.9999
Logits = NDArray[np.float32]


def plainly(logits: Logits, params: SamplingParams) -> NDArray[np.int64]:
    """The ids that the filters leave, rising, by sorting all logits; of equal ones the first stay."""
    z = logits.astype(np.float64)
    if params.temperature == 0.0:
        return np.array([z.argmax()])
    falling = np.sort(z)[::-1][: params.top_k or len(z)]
    if params.top_p < 1.0:
        sums = np.cumsum(np.exp(falling - falling[0]))
        falling = falling[: int(np.searchsorted(sums, params.top_p * sums[-1])) + 1]
    if params.min_p > 0.0:
        falling = falling[falling >= falling[0] + np.log(params.min_p)]
    ids = np.flatnonzero(z >= falling[-1])
    surplus = len(ids) - len(falling)
    return np.delete(ids, np.flatnonzero(z[ids] == falling[-1])[-surplus:]) if surplus else ids


def milliseconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def named(params: SamplingParams) -> str:
    if params.temperature == 0.0:
        return "greedy"
    parts = [f"t {params.temperature:g}"]
    parts += [f"top-k {params.top_k}"] if params.top_k else []
    parts += [f"top-p {params.top_p:.10g}"] if params.top_p < 1.0 else []
    parts += [f"min-p {params.min_p:g}"] if params.min_p else []
    return ", ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with ReferenceModel.load() as model:
        rows = [model.next_logits(model.tokenize(text)) for text in TEXTS]
    print(f"milliseconds a token, {len(rows[0]):,} logits, median of {rounds * len(rows)} draws\n")
    print(f"{'':34}{'tokens left':>13}{'ours':>8}{'plain sort':>12}{'ours/plain':>12}")
    ratio = {}
    for params in SETTINGS:
        ours: list[float] = []
        plain: list[float] = []
        left = []
        for row in rows:
            kept = distribution(row, params)[0]
            same = np.array_equal(kept, plainly(row, params))
            assert same, f"{named(params)} keeps other tokens than a full sort"
            left.append(len(kept))
        for i in range(rounds):
            for row in rows:
                ours.append(milliseconds(lambda: draw(row, params, (), 0, rng_for(0, i))))  # noqa: B023
                plain.append(milliseconds(lambda: plainly(row, params)))  # noqa: B023
        a, b = statistics.median(ours), statistics.median(plain)
        ratio[params] = a / b
        print(f"{named(params):34}{min(left):>6}–{max(left):<6}{a:8.3f}{b:12.3f}{a / b:11.2f}x")
    met = ratio[SamplingParams(1.0, top_p=0.9999)] <= LIMIT
    print(f"\ntop-p 0.9999: {'at most' if met else 'ABOVE'} {LIMIT}x of the plain way")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
