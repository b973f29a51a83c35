"""The waiting queue: who is admitted next, by what rule, and why nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tutor.serving.config import EngineConfig
from tutor.serving.errors import RequestTooLarge, ensure
from tutor.serving.request import Request

CachedTokens = Callable[[Request], int]


class WaitingQueue:
    """Waiting requests in order of arrival; preempted ones stand before all others.

    rule: fcfs, priority (lowest number first), shortest (fewest prompt tokens first) or longest_prefix (most
    cached tokens first). A request that was passed over `max_passed_over` times goes next, whatever the rule.
    """

    def __init__(self, rule: str, max_passed_over: int) -> None:
        self._rule = rule
        self._limit = max_passed_over
        self._preempted: list[Request] = []
        self._queue: list[Request] = []
        self._passed_over: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._preempted) + len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        yield from self._preempted
        yield from self._queue

    def append(self, request: Request) -> None:
        self._queue.append(request)
        self._passed_over[request.request_id] = 0

    def put_back(self, request: Request) -> None:
        """A preempted request goes to the front."""
        self._preempted.insert(0, request)

    def remove(self, request: Request) -> None:
        """Take a request out, admitted or aborted. ValueError if it does not wait."""
        (self._preempted if request in self._preempted else self._queue).remove(request)
        self._passed_over.pop(request.request_id, None)

    def admit(self, request: Request) -> None:
        """Take a request out; those that arrived before it were passed over."""
        if request in self._queue:
            for earlier in self._queue[: self._queue.index(request)]:
                self._passed_over[earlier.request_id] += 1
        self.remove(request)

    def order(self, cached_tokens: CachedTokens) -> list[tuple[Request, str]]:
        """All waiting requests, next first, each with the reason for its place."""
        late = [r for r in self._queue if self._passed_over[r.request_id] >= self._limit]
        rest = [r for r in self._queue if r not in late] if late else self._queue
        placed = [(r, "it was preempted, so it goes first") for r in self._preempted]
        if self._rule != "fcfs":
            placed += [(r, f"it was passed over {self._limit} times") for r in late]
        return placed + self._by_rule(rest if self._rule != "fcfs" else self._queue, cached_tokens)

    def _by_rule(self, requests: list[Request], cached_tokens: CachedTokens) -> list[tuple[Request, str]]:
        match self._rule:
            case "priority":
                ranked = sorted(requests, key=lambda r: r.priority)
                return [(r, f"priority {r.priority} is the most urgent") for r in ranked]
            case "shortest":
                ranked = sorted(requests, key=lambda r: r.num_prompt_tokens)
                return [(r, f"its prompt of {r.num_prompt_tokens} tokens is the shortest") for r in ranked]
            case "longest_prefix":
                counted = sorted(((cached_tokens(r), r) for r in requests), key=lambda pair: -pair[0])
                return [(r, f"{count} of its tokens are cached, the most") for count, r in counted]
        return [(r, "it arrived first") for r in requests]

    def check_integrity(self) -> None:
        ids = [r.request_id for r in self]
        ensure(len(ids) == len(set(ids)), "a request waits twice")
        queued = {r.request_id for r in self._queue}
        ensure(queued == self._passed_over.keys(), "the counts of passed-over requests are stale")


def check_size(request: Request, config: EngineConfig) -> None:
    """RequestTooLarge for a request that could not run even alone."""
    longest = request.num_prompt_tokens + request.max_tokens
    needed = -(-longest // config.block_size)
    if needed > config.num_blocks:
        raise RequestTooLarge(
            f"Request {request.request_id} needs {needed} blocks of {config.block_size} tokens "
            f"({request.num_prompt_tokens} prompt + {request.max_tokens} output); "
            f"there are {config.num_blocks}."
        )
    # A preempted request is recomputed with its output, which then has to fit as well.
    if not config.chunked_prefill and longest > config.max_num_batched_tokens:
        raise RequestTooLarge(
            f"Request {request.request_id} may grow to {longest} tokens; without chunked prefill "
            f"they must fit the budget of {config.max_num_batched_tokens} tokens a step."
        )
