"""LlamaRunner: carries out the scheduler's steps on a llama.cpp context."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from tutor.llama import kv, library
from tutor.llama.batch import Batch
from tutor.llama.cells import CellWatcher
from tutor.llama.context import Context
from tutor.llama.sampler import draw, rng_for
from tutor.llama.threads import ThreadGovernor
from tutor.llama.verify import verify_choices
from tutor.serving.outputs import (
    KVOperation,
    ModelRunnerOutput,
    ScheduledRequest,
    SchedulerOutput,
    SeqArchive,
    SeqClear,
    SeqCopy,
    SeqDrop,
    SeqKeep,
    SeqLoad,
    SeqRemove,
    SeqRestore,
    SeqSave,
    TokenLogprob,
)
from tutor.trace.events import CellMapRead

LogitsHook = Callable[[str, NDArray[Any]], None]


class LlamaRunner:
    """Slots and parks are sequence ids of the context; one `execute` is one `llama_decode`.

    `on_logits(request_id, row)` sees the logits (float32 [vocabulary], llama.cpp's own memory) of each
    token before it is sampled.
    """

    def __init__(
        self,
        context: Context,
        *,
        on_logits: LogitsHook | None = None,
        archive: Callable[[list[int], str, bool, bytes], None] | None = None,
        governor: ThreadGovernor | None = None,
    ) -> None:
        self.context = context
        self._batch = Batch(context.n_batch, slots_per_token=1)
        self._saved: dict[str, bytes] = {}  # lanes that were swapped out
        self._watcher: CellWatcher | None = None
        self._on_cells: Callable[[CellMapRead], None] | None = None
        self._on_logits = on_logits
        self._archive = archive
        self._governor = governor

    def watch(self, watcher: CellWatcher, on_cells: Callable[[CellMapRead], None]) -> None:
        """Compare the ledger with llama.cpp's cell map at every step from now on."""
        self._watcher = watcher
        self._on_cells = on_cells

    def now(self) -> float:
        return time.perf_counter()

    def piece(self, token_id: int) -> bytes:
        return self.context.model.piece(token_id)

    def apply(self, operations: Sequence[KVOperation]) -> None:
        for operation in operations:
            match operation:
                case SeqCopy(src, dst, start, end):
                    kv.seq_cp(self.context, src, dst, start, end)
                case SeqRemove(seq, start):
                    kv.seq_rm(self.context, seq, start)
                case SeqKeep(src, parts, size):
                    for park, start in parts:
                        kv.seq_cp(self.context, src, park, start, start + size)
                case SeqClear(seqs):
                    for seq in seqs:
                        kv.seq_rm(self.context, seq)
                case SeqSave(seq, key):
                    self._saved[key] = kv.save(self.context, seq)
                case SeqRestore(key, seq):
                    kv.restore(self.context, seq, self._saved.pop(key))
                case SeqDrop(key):
                    del self._saved[key]
                case SeqArchive(seq, token_ids, salt, lossy):
                    if self._archive is not None:
                        self._archive(token_ids, salt, lossy, kv.save(self.context, seq))
                case SeqLoad(seq, blob, num_tokens):
                    kv.restore(self.context, seq, blob)
                    kv.seq_rm(self.context, seq, num_tokens)

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        started = time.perf_counter()
        self.apply(output.operations)
        self._batch.clear()
        rows: list[tuple[ScheduledRequest, int]] = []
        for share in output.scheduled:
            plain = len(share.token_ids) - share.num_drafts
            index = self._batch.add_run(share.token_ids[:plain], share.start, share.slot, share.samples)
            for i in range(plain, len(share.token_ids)):
                self._batch.add(share.token_ids[i], share.start + i, (share.slot,), True)
            if share.samples:
                rows.append((share, index))
        if self._watcher is not None:
            self._decode_watched(output, self._watcher)
        else:
            self._decode()
        logprobs: dict[str, list[TokenLogprob]] = {}
        sampled = {share.request_id: self._sample(share, index, logprobs) for share, index in rows}
        return ModelRunnerOutput(sampled, time.perf_counter() - started, logprobs)

    def _decode(self) -> None:
        if self._governor is None:
            self.context.decode(self._batch)
        else:
            with self._governor.step(len(self._batch)):
                self.context.decode(self._batch)

    def _decode_watched(self, output: SchedulerOutput, watcher: CellWatcher) -> None:
        for share in output.scheduled:
            watcher.expect(share.request_id, share.start, len(share.token_ids))
        with library.captured_log() as lines:
            self._decode()
        event = watcher.compare(lines, output.num_tokens)
        if event is not None and self._on_cells is not None:
            self._on_cells(event)

    def _sample(
        self, share: ScheduledRequest, first: int, logprobs: dict[str, list[TokenLogprob]]
    ) -> list[int]:
        """Accepted drafts and the token after them; row `first` is that of the newest known token."""
        params = share.sampling
        drafts = share.token_ids[len(share.token_ids) - share.num_drafts :]
        if self._on_logits is not None:
            self._on_logits(share.request_id, self.context.logits(first))

        def choose(i: int) -> int:
            if params.is_plain_greedy:
                return self.context.argmax(first + i)
            # Seeded by the request and its token count, so that the batch around it changes nothing.
            rng = rng_for(params.seed, share.num_output_tokens + i)
            history = share.history + drafts[:i] if params.has_penalties else ()
            prompt = share.num_prompt_tokens
            drawn = draw(self.context.logits(first + i), params, history, prompt, rng)
            if drawn.logprob is not None:
                told = logprobs.setdefault(share.request_id, [])
                told.append(TokenLogprob(drawn.logprob, drawn.top))
            return drawn.token

        return verify_choices(choose, drafts)
