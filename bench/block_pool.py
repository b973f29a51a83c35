"""The block pool and the scheduler alone: requests, appended tokens and schedules a second.

    python bench/block_pool.py [--requests N] [--rounds N]

Every figure is the best of several rounds, taken in turn, so that another process on the machine
disturbs all of them alike. `hashing` is the time that the block hashes alone take; the ratios are to it.
Known figures of other engines on a machine of this kind (2 cores, AVX2) stand beside ours; they were not
measured in this run.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable

from tutor.serving.booking import Bookkeeper
from tutor.serving.config import EngineConfig
from tutor.serving.kv_cache_manager import KVCacheManager
from tutor.serving.outputs import ModelRunnerOutput
from tutor.serving.prefix_cache import extend_chain
from tutor.serving.request import Request
from tutor.serving.scheduler import Scheduler
from tutor.serving.tracing import Tracer

TOKENS, BLOCK, SHARED, LIVE, VOCABULARY = 512, 16, 448, 32, 49_152
NUM_BLOCKS = 2048
RUNNING = 256


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(VOCABULARY) for _ in range(TOKENS)] for _ in range(count)]


def manager() -> KVCacheManager:
    config = EngineConfig(
        max_num_seqs=LIVE, max_num_batched_tokens=TOKENS, block_size=BLOCK, num_blocks=NUM_BLOCKS,
        max_parked=NUM_BLOCKS,
    )  # fmt: skip
    return KVCacheManager(config, Tracer(None))


def make_requests(token_lists: list[list[int]]) -> list[Request]:
    made = [Request(str(i), tokens, 8) for i, tokens in enumerate(token_lists)]
    for i, request in enumerate(made):
        request.slot = i % LIVE
    return made


def timed(work: Callable[[], None]) -> float:
    gc.collect()
    gc.disable()
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    gc.enable()
    return seconds


def hashing(token_lists: list[list[int]]) -> float:
    def work() -> None:
        for tokens in token_lists:
            extend_chain([], tokens, BLOCK)

    return timed(work)


def start(kv: KVCacheManager, request: Request) -> None:
    """Match, share, allocate, compute (pretended) and store a whole prompt."""
    matched = kv.match(request)
    request.num_computed_tokens = kv.begin(request, matched)
    kv.allocate(request, TOKENS - request.num_computed_tokens)
    request.num_computed_tokens = TOKENS
    kv.store_full_blocks(request)


def cold(token_lists: list[list[int]]) -> float:
    """One request after another, nothing in common."""
    kv, requests = manager(), make_requests(token_lists)

    def work() -> None:
        for request in requests:
            start(kv, request)
            kv.free(request, "done")
            kv.take_operations()

    seconds = timed(work)
    kv.check_integrity()
    return seconds


def shared(token_lists: list[list[int]]) -> float:
    """32 live at a time, the first 448 of 512 tokens in common."""
    kv = manager()
    requests = make_requests([token_lists[0][:SHARED] + tokens[SHARED:] for tokens in token_lists])

    def work() -> None:
        for i, request in enumerate(requests):
            if i >= LIVE:
                kv.free(requests[i - LIVE], "done")
                kv.take_operations()
            start(kv, request)

    seconds = timed(work)
    kv.check_integrity()
    return seconds


def append(token_lists: list[list[int]]) -> float:
    """Token by token: a block is taken whenever the last one is full."""
    kv, requests = manager(), make_requests(token_lists)

    def work() -> None:
        for request in requests:
            kv.begin(request, [])
            for _ in range(TOKENS):
                if request.num_computed_tokens == len(request.block_table) * BLOCK:
                    kv.allocate(request, 1)
                request.num_computed_tokens += 1
            kv.free(request, "done")
            kv.take_operations()

    return timed(work)


def schedule() -> float:
    """Seconds of one schedule() with 256 running requests, the median of 200."""
    config = EngineConfig(
        max_num_seqs=RUNNING, max_num_batched_tokens=8192, block_size=BLOCK, num_blocks=8000,
        prefix_caching=False,
    )  # fmt: skip
    tracer = Tracer(None)
    scheduler = Scheduler(config, tracer)
    books = Bookkeeper(scheduler, tracer, lambda token: b"")
    for i, tokens in enumerate(prompts(RUNNING)):
        scheduler.add(Request(str(i), tokens[:20], 400))
    times = []
    for _ in range(200):
        started = time.perf_counter()
        output = scheduler.schedule()
        times.append(time.perf_counter() - started)
        sampled = {share.request_id: [5] for share in output.scheduled if share.samples}
        books.update(output, ModelRunnerOutput(sampled, 0.0))
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    many = prompts(options.requests)
    few = many[: options.requests // 4]
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for name, seconds in (
            ("hashing", hashing(many) / len(many)),
            ("cold", cold(many) / len(many)),
            ("cold, a quarter", cold(few) / len(few)),
            ("shared", shared(many) / len(many)),
            ("append", append(few) / len(few) / TOKENS),
            ("schedule", schedule()),
        ):
            best[name] = min(seconds, best.get(name, seconds))
    report(best, options.requests)


def report(best: dict[str, float], count: int) -> None:
    h = best["hashing"]
    print(
        f"{count:,} requests of {TOKENS} tokens, blocks of {BLOCK}, {NUM_BLOCKS} blocks; best of the rounds"
    )
    print(f"{'':34}{'ours':>16}{'x hashing':>11}   known elsewhere (not in this run)")
    row = "{:34}{:>16}{:>11}   {}"
    print(row.format("hashing alone", f"{1 / h:,.0f} req/s", "1.00", ""))
    print(row.format("cold: hash, allocate, store, free", f"{1 / best['cold']:,.0f} req/s",
                     f"{best['cold'] / h:.2f}", "nano-vllm 6,500-7,100; vLLM 2,700-4,500"))  # fmt: skip
    print(row.format("shared: 32 live, 448 in common", f"{1 / best['shared']:,.0f} req/s",
                     f"{best['shared'] / h:.2f}", "nano-vllm 4,700-6,000; vLLM 3,900-5,800"))  # fmt: skip
    print(row.format("append token by token", f"{1 / best['append']:,.0f} tok/s", "",
                     "nano-vllm 760,000-1,000,000; vLLM 65,000-105,000"))  # fmt: skip
    print(row.format("schedule, 256 running", f"{best['schedule'] * 1e6:,.0f} us", "", ""))
    print(f"growth: cold time a request, {count:,} against {count // 4:,}: "
          f"{best['cold'] / best['cold, a quarter']:.2f}x (1.00 is linear)")  # fmt: skip


if __name__ == "__main__":
    main()
