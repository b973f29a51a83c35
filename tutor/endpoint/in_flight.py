"""What the engine still owes: requests that run or wait, calls, and aborts that it has not confirmed."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count

from tutor.endpoint import messages as msg
from tutor.endpoint.errors import ApiError, bad_request
from tutor.endpoint.generation import Generation
from tutor.endpoint.observer import Observer

RECENT = 32  # finished requests from which the wait is estimated


class InFlight:
    """Hands each message of the engine to the request that it is about, and tells the observer."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._generations: dict[str, Generation] = {}
        self._calls: dict[int, asyncio.Future[msg.Tokenized]] = {}
        self._leaving: set[str] = set()  # aborted, but the engine has not said so yet
        self._call_ids = count(1)
        self._finished: deque[float] = deque(maxlen=RECENT)

    @property
    def num_samples(self) -> int:
        """Samples that the engine runs or keeps waiting."""
        return sum(generation.num_left for generation in set(self._generations.values()))

    @property
    def is_empty(self) -> bool:
        """Nobody waits for anything."""
        return not (self._generations or self._calls)

    @property
    def owes_step(self) -> bool:
        """Must the engine's own thread do something, for a request or for one that has left?"""
        return bool(self._generations or self._leaving)

    @property
    def owes_answer(self) -> bool:
        """Must anything come from the engine?"""
        return self.owes_step or bool(self._calls)

    def wait_estimate(self) -> int:
        """Seconds until a request is done, at the pace of the latest ones; 1 at least, 60 at most."""
        if len(self._finished) < 2:
            return 1
        span = self._finished[-1] - self._finished[0]
        return max(1, min(60, round(span / (len(self._finished) - 1))))

    def add(self, generation: Generation) -> None:
        for submit in generation.submits:
            self._generations[submit.request_id] = generation

    def withdraw(self, generation: Generation) -> list[msg.Submit]:
        """Nobody waits for it any more; returns what the engine has to be told to abort."""
        pop = self._generations.pop
        left = [submit for submit in generation.submits if pop(submit.request_id, None) is not None]
        self._leaving.update(submit.request_id for submit in left)
        return left

    def open_call(self) -> tuple[int, asyncio.Future[msg.Tokenized]]:
        call_id = next(self._call_ids)
        answer = self._calls[call_id] = asyncio.get_running_loop().create_future()
        return call_id, answer

    def close_call(self, call_id: int) -> None:
        self._calls.pop(call_id, None)

    def fail_all(self, error: ApiError) -> None:
        """End everything with an error; the engine is not told."""
        for generation in list(self._generations.values()):
            generation.fail(error)
        self._generations.clear()
        self._leaving.clear()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(error)
        self._calls.clear()

    # --- messages ---------------------------------------------------------------------------------

    def take(self, message: msg.Message) -> None:
        match message:
            case msg.Stepped():
                self._take_step(message)
            case msg.Accepted(request_id):
                if (generation := self._generations.get(request_id)) is not None:
                    generation.take_accepted(message)
            case msg.Rejected(request_id, code, sentence, param):
                if (generation := self._generations.pop(request_id, None)) is not None:
                    generation.fail(bad_request(sentence, param or None, code))
            case msg.Tokenized(call_id):
                if (call := self._calls.get(call_id)) is not None and not call.done():
                    call.set_result(message)
            case msg.Refused(call_id, sentence):
                if (call := self._calls.get(call_id)) is not None and not call.done():
                    call.set_exception(bad_request(sentence, code="invalid_value"))
            case msg.Aborted(request_id):
                self._leaving.discard(request_id)
                self.observer.freed(message)
            case msg.Recorded(records):
                self.observer.recorded(records)
            case _:
                pass

    def _take_step(self, step: msg.Stepped) -> None:
        self.observer.stepped(step)
        for output in step.outputs:
            generation = self._generations.get(output.request_id)
            if generation is None:
                continue
            piece = generation.take(output, step.at)
            if piece is None:
                continue
            self.observer.took(generation, piece, step.at)
            if output.finish_reason:
                self._finished.append(step.at)
            if generation.is_over:
                for submit in generation.submits:
                    self._generations.pop(submit.request_id, None)
