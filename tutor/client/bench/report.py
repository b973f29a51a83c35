"""The result as plain text, 80 columns wide."""

from __future__ import annotations

import textwrap

from tutor.client.bench.confidence import Distribution, Interval
from tutor.client.bench.findings import findings
from tutor.client.bench.result import Result
from tutor.client.bench.workload import Load

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
    return (
        f"{how}; {load.requests} requests after {load.warmup} to warm up; {lengths}{extra}; seed {load.seed}"
    )


def report(result: Result) -> str:
    setup, rates = result.setup, result.rates
    lines = [
        f"{setup.url}{setup.target.path}  MEASURED by this client",
        setup.target.model.rsplit("/", 1)[-1][:WIDTH],
        *textwrap.wrap(load_sentence(setup.load), WIDTH),
        "",
        f"requests   {result.completed} done, {result.failed} failed in {result.run.duration:.1f} s"
        f"    {rates.requests:.2f} requests/s",
        f"tokens     {result.num_input_tokens:,} in, {result.num_output_tokens:,} out"
        f"    {rates.output_tokens:.1f} output tokens/s, {rates.all_tokens:.1f} in all",
        f"in flight  {rates.concurrency:.1f} on average (requests/s x E2E), "
        f"{result.run.most_in_flight} at most",
    ]
    if rates.goodput is not None and setup.targets is not None:
        share = rates.goodput / rates.requests if rates.requests else 0.0
        lines.append(
            f"goodput    {rates.goodput:.2f} requests/s meet TTFT {setup.targets.ttft * 1e3:g} ms and "
            f"TPOT {setup.targets.tpot * 1e3:g} ms ({share:.0%})"
        )
    lines += ["", *_table(result), ""]
    lines += [
        "TPOT is (E2E - TTFT)/(n - 1), as vLLM's bench defines it; E2E/n is what GuideLLM",
        "calls TPOT. Percentiles are nearest-rank; in brackets their 95 % interval",
        "(bootstrap over requests).",
    ]
    found = findings(result)
    if found:
        lines += ["", "Before you believe it:"]
    for finding in found:
        mark = "! " if finding.warns else "- "
        lines += textwrap.wrap(finding.sentence, WIDTH, initial_indent=mark, subsequent_indent="  ")
    return "\n".join(lines)


def _table(result: Result) -> list[str]:
    rows: list[tuple[str, Distribution | None]] = [
        ("TTFT", result.ttft),
        ("TPOT", result.tpot),
        ("E2E/n", result.e2e_per_token),
        ("ITL", result.itl),
        ("E2E", result.e2e),
    ]
    if result.setup.load.arrivals != "closed":
        rows += [("TTFT due", result.planned_ttft), ("E2E due", result.planned_e2e)]
    head = "ms".ljust(8) + "mean".rjust(7)
    head += "".join(f"P{q:g}".rjust(7) + " " * 14 for q in result.setup.percentiles)
    lines = [head.rstrip()]
    for name, spread in rows:
        if spread is None:
            lines.append(f"{name:<8}  no value")
            continue
        cells = "".join(_cell(spread.percentiles[q]) for q in result.setup.percentiles)
        lines.append(f"{name:<8}{_ms(spread.mean.value):>7}{cells}".rstrip())
    if result.setup.load.arrivals != "closed":
        lines.append("'due' counts from when a request was due, not from when it left.")
    return lines


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _cell(x: Interval) -> str:
    bracket = f" [{_ms(x.low)}-{_ms(x.high)}]"
    return f"{_ms(x.value):>7}{bracket:<14}"
