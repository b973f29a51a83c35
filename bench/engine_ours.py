"""Our side of the comparison: `LlamaEngine` measured as a server would be, without a trace being kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quiet import peak_rss

from tutor.llama.config import KvType, Mode
from tutor.llama.engine import LlamaEngine
from tutor.llama.model import Model
from tutor.llama.runner import LlamaRunner
from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.request import Request

BUDGET = 512  # tokens of a step, llama-server's n_ubatch
BLOCK = 16


class Ours:
    """An engine with `slots` slots of `cells` KV cells each, in one pool."""

    def __init__(
        self,
        model: Model,
        slots: int,
        cells: int,
        threads: int,
        *,
        caching: bool = False,
        mode: Mode = "shared",
        kv_type: KvType = "f16",
    ) -> None:
        config = EngineConfig(
            max_num_seqs=slots,
            max_num_batched_tokens=BUDGET,
            block_size=BLOCK,
            num_blocks=(slots if mode == "shared" else 1) * cells // BLOCK,
            prefix_caching=caching,
            shared_cells=mode == "shared",
        )
        self.engine = LlamaEngine(model, config, mode=mode, threads=threads, kv_type=kv_type)
        self.core = EngineCore(config, LlamaRunner(self.engine.context))
        self._made = 0

    def add(self, prompt: Sequence[int], count: int) -> Request:
        self._made += 1
        request = self.engine.request(str(self._made), "", list(prompt), count, ignore_eos=True)
        self.core.add_request(request)
        return request

    def run(self) -> None:
        while self.core.has_work:
            self.core.step()

    def decode_speed(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        """Tokens a second of all together, from when each has its first token to when the last is done."""
        requests = [self.add(prompt, count) for prompt in prompts]
        while any(request.num_output_tokens == 0 for request in requests):
            self.core.step()
        before, started = sum(request.num_output_tokens for request in requests), time.perf_counter()
        self.run()
        seconds = time.perf_counter() - started
        return (sum(request.num_output_tokens for request in requests) - before) / seconds

    def first_token(self, prompt: Sequence[int]) -> tuple[float, Request]:
        """Seconds from adding a request to its first token."""
        started = time.perf_counter()
        request = self.add(prompt, 1)
        self.run()
        return time.perf_counter() - started, request

    def computed(self, prompts: Sequence[Sequence[int]]) -> int:
        """Prompt tokens that went through the model when all are added at once, one output token each."""
        seen = 0
        decode = self.engine.context.decode

        def count(batch: Any) -> None:
            nonlocal seen
            seen += len(batch)
            decode(batch)

        for prompt in prompts:
            self.add(prompt, 1)
        with _replaced(self.engine.context, "decode", lambda _plain: count):
            self.run()
        return seen

    def time_by_part(self, prompts: Sequence[Sequence[int]], count: int) -> dict[str, float]:
        """Seconds of the decode steps by part: "step", and within it the parts that were timed."""
        requests = [self.add(prompt, count) for prompt in prompts]
        while any(request.num_output_tokens == 0 for request in requests):
            self.core.step()
        spent = {"step": 0.0, "schedule": 0.0, "execute": 0.0, "llama_decode": 0.0, "argmax": 0.0}
        context = self.engine.context
        with (
            _replaced(self.core.scheduler, "schedule", _timer(spent, "schedule")),
            _replaced(self.core.runner, "execute", _timer(spent, "execute")),
            _replaced(context.lib, "llama_decode", _timer(spent, "llama_decode")),
            _replaced(context, "argmax", _timer(spent, "argmax")),
        ):
            started = time.perf_counter()
            self.run()
            spent["step"] = time.perf_counter() - started
        return spent

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _timer(spent: dict[str, float], name: str) -> Callable[[Any], Any]:
    """Wrap a function so that the time inside it is added up under a name."""

    def wrap(plain: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            started = time.perf_counter()
            result = plain(*args)
            spent[name] += time.perf_counter() - started
            return result

        return timed

    return wrap


@contextmanager
def _replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    plain = getattr(owner, name)
    setattr(owner, name, wrap(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)


def main(path: str, slots: int, cells: int, threads: int) -> None:
    """For the memory figure: a process with the engine and nothing else decodes once with all slots."""
    with Model.load(Path(path)) as model, Ours(model, slots, cells, threads) as ours:
        ours.decode_speed([[100 + slot, 200, 300, 400] for slot in range(slots)], 16)
        print(peak_rss(os.getpid()))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
