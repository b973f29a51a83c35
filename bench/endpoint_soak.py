"""Thousands of requests against one `tutor serve`: whole, streamed, broken, left alone, too many at once.

At the end nothing may be left over: no request, no block, no task, no open file, no thread, no growth of
memory; and no answer may have been a 500. With --idle, kept-alive connections then pause for longer than 5
seconds between requests, as many at a time as the server takes, and none may fail.

Run: python bench/endpoint_soak.py [-n 10000] [--idle 500]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

WORKERS, SLOTS, WAITING = 16, 8, 6
BAD = (
    b"", b"{", b"[]", b'{"prompt": 1}', b"\xff", b'{"prompt": "x", "max_tokens": 0}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": [[]]}', b'{"prompt": "x", "stop": [""]}', b'{"prompt": "x", "n": 1000}', b"[" * 3000,
)  # fmt: skip
USERS = SLOTS + WAITING  # that are never turned away
SETTLE = 30.0  # seconds that leftovers get to go away
WARM_UP = 300  # requests before the first look at memory
NONE = ("vllm:num_requests_running", "vllm:num_requests_waiting", "tutor:kv_blocks_used")
HELD = (*NONE, "tutor:server_tasks")
PARTS = 4  # looks at memory on the way
GROWTH = 16.0  # MiB that a process may have grown at the end


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    command = [
        sys.executable, "-m", "tutor", "serve", "--port", "0", "--max-num-seqs", str(SLOTS), "--grace", "0",
        "--max-waiting", str(WAITING), "--num-blocks", "64",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if len(words) < 3:
            raise SystemExit("tutor serve did not start.")
        try:
            yield words[2], process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def state(pid: int) -> dict[str, float]:
    """Open files, threads and MiB of the server and of its engine."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    told = {}
    for name, number in (("server", pid), ("engine", int(found.stdout.split()[0]))):
        lines = Path(f"/proc/{number}/status").read_text("ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        told[f"{name} files"] = len(os.listdir(f"/proc/{number}/fd"))
        told[f"{name} threads"] = int(fields["Threads"])
        told[f"{name} MiB"] = int(fields["VmRSS"].split()[0]) / 1024
    return told


async def request(client: httpx2.AsyncClient, rng: random.Random) -> int:
    """The status, or 0 when we left before the end."""
    kind = rng.random()
    if kind < 0.15:
        path = rng.choice(("/v1/completions", "/v1/chat/completions", "/api/chat", "/tokenize"))
        return (await client.post(path, content=rng.choice(BAD))).status_code
    if kind < 0.2:
        return (await client.get(rng.choice(("/metrics", "/health", "/v1/models", "/nothing")))).status_code
    tokens = rng.randint(1, 5)
    body: dict[str, object] = {
        "max_tokens": tokens,
        "stream": rng.random() < 0.5,
        "stop": rng.choice((None, "e")),
    }
    path = "/v1/completions"
    if kind < 0.4:
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": f"{rng.random():.4f}"}]
    else:
        body |= {"prompt": "The same beginning. " * rng.randint(0, 3) + f"{rng.random():.4f}"}
        body["n"] = rng.choice((1, 1, 1, 2, 3))
        body["logprobs"] = rng.choice((None, None, 2))
    try:
        limit = rng.choice((60, 60, 60, 0.01, 0.05, 0.2))
        return (await client.post(path, json=body, timeout=limit)).status_code
    except httpx2.TimeoutException:
        return 0


async def soak(url: str, count: int, seed: int) -> Counter[int]:
    left = iter(range(count))
    seen: Counter[int] = Counter()

    async def work(client: httpx2.AsyncClient) -> None:
        for number in left:
            # who is turned away comes again with the same request
            while (status := await request(client, random.Random(f"{seed} {number}"))) == 429:
                seen[status] += 1
                await asyncio.sleep(0.05)
            seen[status] += 1

    async with httpx2.AsyncClient(base_url=url) as client:
        await asyncio.gather(*(work(client) for _ in range(WORKERS)))
    return seen


async def leftovers(url: str, pid: int, limits: dict[str, float]) -> dict[str, float]:
    """What the server and its engine still hold when it is within the limits, or after it had its time."""
    deadline = time.monotonic() + SETTLE
    async with httpx2.AsyncClient(base_url=url) as client:
        while True:
            lines = (await client.get("/metrics")).text.splitlines()
            held = {line.split("{")[0]: float(line.split()[-1]) for line in lines if line.startswith(HELD)}
            held |= state(pid)
            if not exceeded(held, limits) or time.monotonic() > deadline:
                return held
            await asyncio.sleep(0.1)


def exceeded(held: dict[str, float], limits: dict[str, float]) -> list[str]:
    """No request and no block may be left; nothing else may have grown, memory by `GROWTH` at most."""
    more = dict.fromkeys(held, 0.0) | {name: GROWTH for name in held if name.endswith("MiB")}
    return [name for name in held if held[name] > limits.get(name, 0 if name in NONE else 1e9) + more[name]]


async def idle(url: str, count: int) -> Counter[str]:
    """`count` requests with pauses above 5 s on connections that are kept; `USERS` at a time."""
    seen: Counter[str] = Counter()
    async with httpx2.AsyncClient(
        base_url=url, timeout=60, limits=httpx2.Limits(keepalive_expiry=60)
    ) as client:

        async def user(number: int) -> None:
            for turn in range(-(-count // USERS)):
                if turn:
                    await asyncio.sleep(5.5)
                try:
                    answer = await client.post(
                        "/v1/completions", json={"prompt": f"{number}", "max_tokens": 1}
                    )
                    seen[str(answer.status_code)] += 1
                except httpx2.TransportError as error:
                    seen[type(error).__name__] += 1

        await asyncio.gather(*(user(number) for number in range(USERS)))
    return seen


def part(count: int, place: int) -> int:
    """Requests in one of the parts; together they are `count`."""
    return count * (place + 1) // PARTS - count * place // PARTS


def main(count: int, num_idle: int) -> int:
    with serving() as (url, pid):
        asyncio.run(soak(url, min(WARM_UP, count), 1))
        looks = [asyncio.run(leftovers(url, pid, {}))]
        seen: Counter[int] = Counter()
        started = time.perf_counter()
        for place in range(PARTS):
            seen += asyncio.run(soak(url, part(count, place), 2 + place))
            looks.append(asyncio.run(leftovers(url, pid, looks[0])))
        print(
            f"{count} requests in {time.perf_counter() - started:.0f} s, by status (0: we left): "
            f"{dict(sorted(seen.items()))}"
        )
        idled = asyncio.run(idle(url, num_idle)) if num_idle else Counter()
        if num_idle:
            print("with pauses of 5.5 s:", dict(idled))
            looks.append(asyncio.run(leftovers(url, pid, looks[0])))
    print("held after the warm-up, after each quarter" + (", after the pauses" if num_idle else ""))
    for name in looks[0]:
        print(f"{name:26}" + "".join(f"{look[name]:9.1f}" for look in looks))
    wrong = exceeded(looks[-1], looks[0]) + sorted(
        str(status) for status in set(seen) - {0, 200, 400, 404, 429}
    )
    wrong += sorted(set(idled) - {"200"})
    print(f"FAILED: {wrong}" if wrong else "passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=2000, help="requests (2000)")
    parser.add_argument("--idle", type=int, default=0, help="requests with pauses between them (0)")
    given = parser.parse_args()
    sys.exit(main(given.n, given.idle))
