"""One HTTP request's share of the engine: its samples, what they brought so far, and the way to stop them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tutor.endpoint import messages as msg
from tutor.endpoint.errors import ApiError


@dataclass(slots=True)
class Sample:
    """One choice of the answer. Times are readings of `time.perf_counter`, 0.0 before they are known."""

    index: int
    num_prompt_tokens: int = 0
    max_tokens: int = 0
    num_cached_tokens: int = 0
    num_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    admitted_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    finish_reason: str = ""
    was_opened: bool = False  # a chunk with its role went out
    num_streamed_chars: int = 0  # of tokens that were streamed with logprobs
    text: list[str] = field(default_factory=list)
    logprobs: list[msg.TokenLogprobs] = field(default_factory=list)

    def take(self, output: msg.Output, at: float) -> None:
        """Book what a step brought."""
        if output.admitted is not None and not self.admitted_at:
            self.admitted_at = output.admitted.at
            self.num_cached_tokens = output.admitted.num_cached_tokens
        if output.num_tokens:
            self.first_token_at = self.first_token_at or at
            self.last_token_at = at
        self.num_tokens += output.num_tokens
        self.num_drafted += output.num_drafted
        self.num_accepted += output.num_accepted
        self.text.append(output.text)
        self.logprobs += output.logprobs
        self.finish_reason = output.finish_reason


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new for one sample: its text, its logprobs, and how it ended ("" while it goes on)."""

    sample: Sample
    output: msg.Output
    since: float  # seconds since its last tokens, 0.0 for the first


class Generation:
    """The samples of all prompts of a request. `pieces()` yields until each has finished.

    `load_seconds`: how long the request waited for the engine to be loaded.
    """

    def __init__(
        self, submits: list[msg.Submit], stop: Callable[[Generation], None], load_seconds: float
    ) -> None:
        self.submits = submits
        self.arrived_at = submits[0].arrived_at
        self.load_seconds = load_seconds
        n = submits[0].n
        self.samples = [Sample(index) for index in range(len(submits) * n)]
        self._first = {submit.request_id: place * n for place, submit in enumerate(submits)}
        self._pending = set(self._first)
        self._stop = stop
        self._left = len(self.samples)
        self._queue: asyncio.Queue[Piece | ApiError | None] = asyncio.Queue()
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False

    @property
    def num_samples(self) -> int:
        return len(self.samples)

    @property
    def num_left(self) -> int:
        """Samples that the engine still runs or keeps waiting."""
        return 0 if self.is_over else self._left

    async def accepted(self) -> None:
        """Returns when the engine has taken all prompts. Raises ApiError when it refuses one."""
        await self._accepted

    async def pieces(self) -> AsyncIterator[Piece]:
        """Raises ApiError when the engine goes away; ends early after `abort`."""
        while (piece := await self._queue.get()) is not None:
            if isinstance(piece, ApiError):
                raise piece
            yield piece

    def abort(self) -> None:
        """Nobody wants the rest. May be called at any time, and more than once."""
        if not self.is_over:
            self._end(None)
            self._stop(self)

    # --- from the engine --------------------------------------------------------------------------

    def take_accepted(self, accepted: msg.Accepted) -> None:
        first, n = self._first[accepted.request_id], self.submits[0].n
        for sample in self.samples[first : first + n]:
            sample.num_prompt_tokens = accepted.num_prompt_tokens
            sample.max_tokens = accepted.max_tokens
        self._pending.discard(accepted.request_id)
        if not self._pending and not self._accepted.done():
            self._accepted.set_result(None)

    def take(self, output: msg.Output, at: float) -> Piece | None:
        """Book a step's output; None when nobody waits for it any more."""
        if self.is_over:
            return None
        sample = self.samples[self._first[output.request_id] + output.index]
        since = at - sample.last_token_at if sample.last_token_at and output.num_tokens else 0.0
        sample.take(output, at)
        piece = Piece(sample, output, since)
        self._queue.put_nowait(piece)
        if output.finish_reason:
            self._left -= 1
            if self._left == 0:
                self._end(None)
        return piece

    def fail(self, error: ApiError) -> None:
        """The engine cannot go on with it."""
        if not self.is_over:
            self._end(error)

    def _end(self, error: ApiError | None) -> None:
        self.is_over = True
        self._queue.put_nowait(error)
        if not self._accepted.done():
            if error is None:
                self._accepted.cancel()
            else:
                self._accepted.set_exception(error)
                self._accepted.exception()  # it may be that nobody waits for it
