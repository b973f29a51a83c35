"""The result as plain text that fits into 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from tutor.client.bench.confidence import Distribution, Interval
from tutor.client.bench.findings import findings
from tutor.client.bench.result import Result
from tutor.client.bench.workload import Load
from tutor.metrics.goodput import Targets

WIDTH = 79


def load_sentence(load: Load) -> str:
    """What was asked for, in words."""
    lengths = f"input {load.input_tokens}, output {load.output_tokens} tokens"
    if load.arrivals == "closed":
        how = f"closed loop, {load.concurrency} at a time"
    else:
        rhythm = "Poisson arrivals" if load.arrivals == "poisson" else "constant rate"
        how = f"open loop, {rhythm}, {load.rate:g} requests/s"
        if load.concurrency is not None:
            how += f", at most {load.concurrency} in flight"
    extra = f", {load.shared:.0%} of each prompt shared" if load.shared else ""
    noun = "request" if load.requests == 1 else "requests"
    return f"{how}; {load.requests} {noun} after {load.warmup} to warm up; {lengths}{extra}; seed {load.seed}"


def report(result: Result, width: int = WIDTH) -> str:
    """`width`: columns of the table of latencies. The sentences never take more than 79."""
    setup, rates, run = result.setup, result.rates, result.run
    per_second = f"{rates.requests:.2f} requests/s"
    lines = [
        f"{setup.url}{setup.target.path}  MEASURED by this client",
        setup.target.model.rsplit("/", 1)[-1][:WIDTH],
        *textwrap.wrap(load_sentence(setup.load), WIDTH),
        "",
        f"requests   {result.completed} done, {result.failed} failed in {run.duration:.1f} s    {per_second}",
        f"tokens     {result.num_input_tokens:,} in, {result.num_output_tokens:,} out"
        f"    {rates.output_tokens:.1f} output tokens/s, {rates.all_tokens:.1f} in all",
        f"in flight  {rates.concurrency:.1f} on average (requests/s x E2E), {run.most_in_flight} at most",
    ]
    if rates.goodput is not None and setup.targets is not None:
        share = rates.goodput / rates.requests if rates.requests else 0.0
        goal = " and ".join(_limits(setup.targets))
        lines.append(f"goodput    {rates.goodput:.2f} requests/s meet {goal} ({share:.0%})")
    lines += [
        "",
        *(_latencies(result, width) if result.completed else ["No request went well: no latencies."]),
    ]
    found = findings(result)
    if found:
        lines += ["", "Before you believe it:"]
    for finding in found:
        mark = "! " if finding.warns else "- "
        lines += textwrap.wrap(finding.sentence, WIDTH, initial_indent=mark, subsequent_indent="  ")
    return "\n".join(lines)


def _limits(targets: Targets) -> list[str]:
    limits = {"TTFT": targets.ttft, "TPOT": targets.tpot, "E2E": targets.e2e}
    return [f"{name} {limit * 1e3:g} ms" for name, limit in limits.items() if math.isfinite(limit)]


def _latencies(result: Result, width: int) -> list[str]:
    """The table, and what its rows and brackets mean."""
    rows: list[tuple[str, Distribution | None]] = [
        ("TTFT", result.ttft),
        ("TPOT", result.tpot),
        ("E2E/n", result.e2e_per_token),
        ("ITL", result.itl),
        ("E2E", result.e2e),
    ]
    is_open = result.setup.load.arrivals != "closed"
    if is_open:
        rows += [("TTFT due", result.planned_ttft), ("E2E due", result.planned_e2e)]
    table = _table(rows, result.setup.percentiles, width)
    meaning = (
        "TPOT is (E2E - TTFT)/(n - 1), as vLLM's bench defines it; E2E/n is what GuideLLM calls TPOT. "
        + ("'due' counts from when a request was due, not from when it left. " if is_open else "")
        + "Percentiles are nearest-rank. In brackets the range that holds the true one 95 times of 100, if "
        "the requests are independent"
        + ("; ? where so few requests have no bound." if any("?" in line for line in table) else ".")
    )
    if result.tpot is None:
        meaning += " Answers of one token have no TPOT and no ITL."
    return [*table, "", *textwrap.wrap(meaning, WIDTH)]


def _table(
    rows: Sequence[tuple[str, Distribution | None]], percentiles: Sequence[float], width: int
) -> list[str]:
    """As many columns beside each other as fit; the others follow below."""
    columns = [_column("mean", [None if x is None else (_ms(x.mean.value), "") for _, x in rows])]
    for q in percentiles:
        cells = [None if x is None else _cell(x.percentiles[q]) for _, x in rows]
        columns.append(_column(f"P{q:.12g}", cells))
    names = ["ms", *(name for name, _ in rows)]
    left = max(map(len, names))
    lines: list[str] = []
    while columns:
        fit = 1
        while fit < len(columns) and left + sum(len(c[0]) + 2 for c in columns[: fit + 1]) <= width:
            fit += 1
        lines += [""] if lines else []
        for name, row in zip(names, zip(*columns[:fit], strict=True), strict=True):
            lines.append(f"{name:<{left}}  {'  '.join(row)}".rstrip())
        columns = columns[fit:]
    return lines


def _column(head: str, cells: Sequence[tuple[str, str] | None]) -> list[str]:
    """Figures end below each other, brackets begin below each other."""
    known = [cell for cell in cells if cell is not None]
    figures = max([len(head), *(len(figure) for figure, _ in known)], default=0)
    brackets = max((len(bracket) for _, bracket in known), default=0)
    lines = [f"{head:>{figures}}{'':<{brackets}}"]
    return lines + [
        f"{figure:>{figures}}{bracket:<{brackets}}" for figure, bracket in (x or ("-", "") for x in cells)
    ]


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _cell(x: Interval) -> tuple[str, str]:
    low, high = ("?" if bound is None else _ms(bound) for bound in (x.low, x.high))
    return _ms(x.value), f" [{low}-{high}]"
