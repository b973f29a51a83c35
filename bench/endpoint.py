"""`tutor serve` against llama-server over HTTP: same file, same threads, same client, rounds of both in turn.

Each round streams completions of token-id prompts at a fixed concurrency from both servers. Tokens a second
are all tokens of a round over its wall time; TTFT is from sending the request to the first chunk with text,
taken over all rounds. The last part leaves streams in the middle and reads from our /metrics how many steps
passed until the blocks were free. The goals are those of the issue: at least 0.97 times llama-server's
tokens/s, TTFT at most 1.05 times, one step. Run: python bench/endpoint.py [--rounds N] [--threads N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
import llama_server
from llama_server import LlamaServer
from quiet import Watch

from tutor.llama.model import find_model
from tutor.metrics.summary import percentile

SLOTS, CELLS = 16, 256
PROMPT, ANSWER = 32, 48  # tokens
REQUESTS = {1: 8, 8: 16, 16: 32}  # by concurrency
SPEED_GOAL, TTFT_GOAL = 0.97, 1.05
LEAVERS = 8


@dataclass
class Figures:
    """One side at one concurrency: tokens/s of each round, TTFT in seconds of each request."""

    speeds: list[float] = field(default_factory=list)
    ttfts: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)  # share of the machine that others used


def prompt(seed: str) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(PROMPT)]


@contextmanager
def our_server(threads: int, budget: int) -> Iterator[tuple[str, int]]:
    command = [
        sys.executable, "-m", "tutor", "serve", "--port", "0", "--max-num-seqs", str(SLOTS),
        "--max-num-batched-tokens", str(budget), "--num-blocks", str(SLOTS * CELLS // 16),
        "--no-prefix-cache", "--kv-type", "f16", "--threads", str(threads), "--grace", "0",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        if len(line) < 3:
            raise SystemExit("tutor serve did not start.")
        try:
            yield line[2], process.pid
        finally:
            process.send_signal(signal.SIGTERM)


async def one(client: httpx2.AsyncClient, ids: list[int]) -> tuple[float, int]:
    """(TTFT, tokens) of one streamed completion."""
    body = {
        "prompt": ids, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}, "cache_prompt": False,
    }  # fmt: skip
    started, ttft, tokens = time.perf_counter(), 0.0, 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if not ttft and chunk["choices"]:
                ttft = time.perf_counter() - started
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
    return ttft, tokens


async def load(url: str, concurrency: int, name: str) -> tuple[float, list[float]]:
    """(tokens/s, TTFTs): each of `concurrency` users sends the next request when the last is answered."""
    numbers = iter(range(REQUESTS[concurrency]))
    done: list[tuple[float, int]] = []

    async def user(client: httpx2.AsyncClient) -> None:
        for number in numbers:
            done.append(await one(client, prompt(f"{name} {number}")))

    # llama-server closes kept-alive connections between requests, so both sides get a new one each time
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        started = time.perf_counter()
        await asyncio.gather(*(user(client) for _ in range(concurrency)))
        seconds = time.perf_counter() - started
    return sum(tokens for _, tokens in done) / seconds, [ttft for ttft, _ in done]


async def leave(url: str) -> str:
    """Leave streams in the middle while others run; what our /metrics says of their blocks."""
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:

        async def leaver(number: int) -> None:
            body = {
                "prompt": prompt(f"leave {number}"), "max_tokens": 200, "ignore_eos": True, "stream": True,
            }  # fmt: skip
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                lines = answer.aiter_lines()
                for _ in range(2 + 3 * number):
                    await anext(lines)

        await asyncio.gather(*(leaver(number) for number in range(LEAVERS)))
        deadline = time.monotonic() + 10
        while (found := await _aborts(client))["count"] < LEAVERS and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
    within = found["1.0"]
    mean = found["sum"] / found["count"] if found["count"] else float("nan")
    verdict = "met" if within == found["count"] == LEAVERS else "missed"
    return (
        f"disconnect to freed blocks: {within:.0f} of {found['count']:.0f} within 1 step, "
        f"mean {1e3 * mean:.1f} ms (goal: all, {verdict})"
    )


async def _aborts(client: httpx2.AsyncClient) -> dict[str, float]:
    found = {"count": 0.0, "1.0": 0.0, "sum": 0.0}
    for line in (await client.get("/metrics")).text.splitlines():
        value = float(line.split()[-1]) if line.startswith("tutor:abort") else 0.0
        if line.startswith("tutor:abort_steps_count"):
            found["count"] = value
        elif line.startswith("tutor:abort_steps_bucket") and 'le="1.0"' in line:
            found["1.0"] = value
        elif line.startswith("tutor:abort_seconds_sum"):
            found["sum"] = value
    return found


def compare(rounds: int, threads: int, budget: int, sizes: list[int]) -> None:
    figures = {(side, size): Figures() for side in ("ours", "theirs") for size in sizes}
    with (
        our_server(threads, budget) as (url, pid),
        LlamaServer(find_model(), SLOTS, CELLS, threads) as server,
    ):
        urls = {"ours": url, "theirs": server.url}
        for side in urls.values():
            asyncio.run(load(side, 1, "warm-up"))
        for index in range(rounds):
            for size in sizes:
                for side in ("ours", "theirs") if index % 2 == 0 else ("theirs", "ours"):
                    watch = Watch([pid, server.pid, *_children(pid)])
                    speed, ttfts = asyncio.run(load(urls[side], size, f"{index} {size}"))
                    found = figures[side, size]
                    found.speeds.append(speed)
                    found.ttfts += ttfts
                    found.others.append(watch.others())
        for size in sizes:
            show(size, figures["ours", size], figures["theirs", size])
        print(asyncio.run(leave(url)))


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def show(size: int, ours: Figures, theirs: Figures) -> None:
    speeds = [sum(side.speeds) / len(side.speeds) for side in (ours, theirs)]
    line(f"concurrency {size}: tokens/s", *speeds, speeds[0] / speeds[1] >= SPEED_GOAL, "%.1f")
    for share in (50, 95):
        ttfts = [1e3 * percentile(side.ttfts, share) for side in (ours, theirs)]
        line(f"concurrency {size}: TTFT P{share}, ms", *ttfts, ttfts[0] / ttfts[1] <= TTFT_GOAL, "%.0f")
    print(f"  others used {max(ours.others + theirs.others):.0%} of the machine at most")


def line(name: str, ours: float, theirs: float, met: bool, form: str) -> None:
    verdict = "met" if met else "missed"
    print(f"{name:34} {form % ours:>8} {form % theirs:>8}   x{ours / theirs:.3f}  {verdict}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=int, default=128, help="our tokens a step (128, as in serve)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(REQUESTS), choices=list(REQUESTS))
    given = parser.parse_args()
    if not llama_server.available():
        raise SystemExit(llama_server.INSTALL)
    print(f"llama-server of xllamacpp {llama_server.version()}, {given.threads} thread(s)")
    print(f"{'':34} {'ours':>8} {'theirs':>8}")
    compare(given.rounds, given.threads, given.budget, given.sizes)
