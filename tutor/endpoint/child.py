"""The engine process of the server: `python -m tutor.endpoint.child`, the settings first on its stdin.

Two threads: one reads commands, tokenizes prompts and answers at once, also in the middle of a step
(llama.cpp computes without Python's lock); the main one owns the engine and steps it. End of file on stdin
ends it.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from typing import IO

from tutor.endpoint import messages as msg
from tutor.endpoint.harvest import Harvest, Live
from tutor.endpoint.prompts import Prompts, PromptTooLong
from tutor.endpoint.step_cost import StepCost
from tutor.llama.engine import LlamaEngine
from tutor.llama.errors import EngineError
from tutor.llama.model import Model, file_digest, find_model
from tutor.serving.draft_length import AdaptiveDraftLength
from tutor.serving.errors import ServingError
from tutor.serving.request import Request
from tutor.serving.speculative import PromptLookupDrafter
from tutor.serving.speculator import Speculator
from tutor.trace.events import TraceHeader

COULD_NOT_RUN = 3
LAB = "serve"


class Pipe:
    """The way to the owner; both threads use it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, *messages: msg.Message) -> None:
        """All of them in one write."""
        data = b"".join(map(msg.encode, messages))
        with self._lock:
            self._stream.write(data)
            self._stream.flush()


Task = tuple[msg.Submit, list[Request]] | tuple[msg.Abort, int] | None  # None: end


class Server:
    """The engine with its queue of tasks. `step` numbers count since the start."""

    def __init__(self, settings: msg.Settings, pipe: Pipe) -> None:
        started = time.perf_counter()
        self._pipe = pipe
        self._settings = settings
        self.model = Model.load(find_model(settings.model))
        self.engine = LlamaEngine(
            self.model, settings.engine, mode=settings.mode, threads=settings.threads,
            adaptive_threads=settings.adaptive_threads, kv_type=settings.kv_type,
        )  # fmt: skip
        self.prompts = Prompts(self.model, self.engine, settings)
        self._cost = StepCost()
        self._harvest = Harvest(self.model.piece, settings.trace)
        self._core = self.engine.start(self._harvest, self._speculator())
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self.step = 0
        load_seconds = time.perf_counter() - started
        pipe.send(msg.Ready(self._card(), self._header(), load_seconds))

    def _speculator(self) -> Speculator | None:
        if not self._settings.speculate:
            return None
        length = AdaptiveDraftLength(self._cost, k_max=self._settings.speculate)
        return Speculator(PromptLookupDrafter(), length)

    def _header(self) -> TraceHeader:
        settings, engine = self._settings, self._settings.engine
        return self.engine.header(
            LAB,
            {
                "max_num_seqs": engine.max_num_seqs,
                "max_num_batched_tokens": engine.max_num_batched_tokens,
                "num_blocks": engine.num_blocks,
                "block_size": engine.block_size,
                "prefix_caching": engine.prefix_caching,
                "kv_type": settings.kv_type,
                "speculate": settings.speculate,
                "admission": engine.admission,
                "preemption": engine.preemption,
            },
        )

    def _card(self) -> msg.ModelCard:
        model, path = self.model, self.model.path
        stat = path.stat()
        return msg.ModelCard(
            id=path.stem,
            name=model.name,
            path=str(path),
            size=stat.st_size,
            digest=file_digest(path),
            modified_at=stat.st_mtime,
            n_vocab=model.dims.n_vocab,
            n_ctx_train=model.dims.n_ctx_train,
            max_model_len=self.prompts.max_model_len,
            architecture=model.meta("general.architecture") or "llama",
            size_label=model.meta("general.size_label") or "",
            file_type=int(model.meta("general.file_type") or 0),
            chat_template=model.meta("tokenizer.chat_template") or "",
        )

    # --- the reading thread -----------------------------------------------------------------------

    def read(self, commands: IO[bytes]) -> None:
        """Take commands until end of file."""
        for line in commands:
            self._obey(msg.decode_command(line))
        self._tasks.put(None)

    def _obey(self, command: msg.Command) -> None:
        match command:
            case msg.Submit():
                self._prepare(command)
            case msg.Abort():
                self._tasks.put((command, self.step))
            case msg.Tokenize(call_id, prompt):
                try:
                    ids = self.prompts.token_ids(prompt)
                except EngineError as error:
                    self._pipe.send(msg.Refused(call_id, str(error)))
                else:
                    self._pipe.send(msg.Tokenized(call_id, ids, [self.model.piece(i) for i in ids]))
            case msg.Detokenize(call_id, token_ids):
                try:
                    pieces = [self.model.piece(i) for i in token_ids]
                except EngineError as error:
                    self._pipe.send(msg.Refused(call_id, str(error)))
                else:
                    self._pipe.send(msg.Tokenized(call_id, token_ids, pieces))

    def _prepare(self, submit: msg.Submit) -> None:
        """Tokenize and check; what cannot run is refused here, without waiting for the step."""
        try:
            requests = self.prompts.requests(submit)
        except PromptTooLong as error:
            code, sentence = "context_length_exceeded", str(error)
        except (EngineError, ServingError) as error:
            code, sentence = "invalid_value", str(error)
        else:
            first = requests[0]
            told = msg.Accepted(submit.request_id, first.num_prompt_tokens, first.max_tokens)
            self._pipe.send(told)
            self._tasks.put((submit, requests))
            return
        self._pipe.send(msg.Rejected(submit.request_id, code, sentence))

    # --- the engine's thread ----------------------------------------------------------------------

    def run(self) -> None:
        """Step while there is work, wait for tasks otherwise; ends when the owner closes the pipe."""
        while self._take_tasks():
            if self._core.has_work:
                self._run_step()
        self.engine.close()

    def _take_tasks(self) -> bool:
        """Carry out what is queued; waits when the engine has nothing to do. False: end."""
        wait = not self._core.has_work
        while True:
            try:
                task = self._tasks.get(block=wait)
            except queue.Empty:
                return True
            wait = False
            match task:
                case None:
                    return False
                case (msg.Submit() as submit, list() as requests):
                    self._add(submit, requests)
                case (msg.Abort() as abort, int() as step):
                    self._abort(abort, step)

    def _add(self, submit: msg.Submit, requests: list[Request]) -> None:
        for index, request in enumerate(requests):
            live = Live(request, submit.request_id, index, submit.arrived_at)
            self._harvest.live[request.request_id] = live
            self._core.add_request(request)

    def _abort(self, abort: msg.Abort, step: int) -> None:
        for index in range(abort.n):
            name = msg.sample_id(abort.request_id, index)
            if name in self._core.scheduler.requests:
                self._core.abort(name)
        self._harvest.outputs()  # nobody waits for them any more
        told = msg.Aborted(
            abort.request_id, abort.asked_at, time.perf_counter(), self.step - step, self._stats()
        )
        self._pipe.send(told, *self._recorded())

    def _run_step(self) -> None:
        result = self._core.step()
        self.step += 1
        duration = result.duration if result is not None else 0.0
        computed = self._harvest.num_computed
        if result is not None and duration:
            self._cost.saw(computed, duration)
        stepped = msg.Stepped(time.perf_counter(), duration, computed, self._harvest.outputs(), self._stats())
        self._pipe.send(stepped, *self._recorded())

    def _recorded(self) -> tuple[msg.Recorded, ...]:
        records = self._harvest.take_records()
        return (msg.Recorded(records),) if records else ()

    def _stats(self) -> msg.Stats:
        scheduler, harvest = self._core.scheduler, self._harvest
        pool = scheduler.kv.pool
        return msg.Stats(
            step=self.step,
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_used_blocks=len(pool.blocks) - pool.num_free,
            num_blocks=len(pool.blocks),
            num_preemptions=harvest.num_preemptions,
            prefix_queries=harvest.prefix_queries,
            prefix_hits=harvest.prefix_hits,
            num_drafts=harvest.num_drafts,
            num_drafted=harvest.num_drafted,
            num_accepted=harvest.num_accepted,
        )


def private_stdout() -> IO[bytes]:
    """The pipe to the owner; anything else that prints to stdout lands on stderr."""
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return messages


def main() -> int:
    # The owner decides when this process ends: Ctrl-C in its terminal goes to the owner alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(private_stdout())
    settings = msg.decode_settings(sys.stdin.buffer.readline())
    try:
        server = Server(settings, pipe)
        threading.Thread(target=server.read, args=(sys.stdin.buffer,), daemon=True).start()
        server.run()
    except (EngineError, ServingError) as error:
        pipe.send(msg.Failed(str(error)))
        return COULD_NOT_RUN
    except BrokenPipeError:
        return 1  # the owner is gone; nobody is left to tell
    return 0


if __name__ == "__main__":
    sys.exit(main())
