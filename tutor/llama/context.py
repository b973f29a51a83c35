"""The context: a KV cache of fixed size and the decode call that fills it.

Every rule of llama.cpp whose breach would end the process, or is answered by a bare number, is checked here
before the call, so that callers see a typed error with a sentence instead.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutor.llama import library
from tutor.llama.batch import Batch
from tutor.llama.config import CELL_LOG, KV_TYPES, ContextConfig, KvType, Mode
from tutor.llama.errors import BadBatch, DecodeAborted, EngineFailed, EngineMisuse, NoSpace
from tutor.llama.model import Model
from tutor.llama.taps import Tap

__all__ = ["CELL_LOG", "Context", "ContextConfig", "KvType", "Mode"]

NO_SPACE, ABORTED, INVALID = 1, 2, -1
MAX_VIEWS = 64


class Context:
    """A KV cache and the decode call. Close it, or use it in a `with` block."""

    def __init__(self, model: Model, config: ContextConfig, tap: Tap | None = None) -> None:
        """Raises EngineMisuse (values), EngineFailed (llama.cpp refused, for example out of memory)."""
        config.check()
        self.lib = model.lib
        self.config = config
        self.model = model
        self.tap = tap
        limit = int(self.lib.llama_max_parallel_sequences())
        if config.n_seq_max > limit:
            raise EngineMisuse(f"{config.n_seq_max} slots are too many.", f"At most {limit} are possible.")
        if min(config.n_batch, config.n_ctx) < config.n_seq_max:
            raise EngineMisuse(
                f"n_ctx {config.n_ctx} or n_batch {config.n_batch} is too small for this many slots.",
                "A decode has to hold one token of each slot: make both at least as large.",
            )
        if tap is not None and model.n_gpu_layers != 0:
            raise EngineMisuse("A tap reads the CPU's memory only.", "Load the model with n_gpu_layers=0.")
        pointer = self._create(model, config, tap)
        self._pointer: int | None = pointer
        self._free = weakref.finalize(self, _free, self.lib, pointer, model)
        self.memory = self.lib.llama_get_memory(pointer)
        self.n_ctx = int(self.lib.llama_n_ctx(pointer))
        self.n_ctx_seq = int(self.lib.llama_n_ctx_seq(pointer))
        self.n_seq_max = int(self.lib.llama_n_seq_max(pointer))
        self.n_batch = int(self.lib.llama_n_batch(pointer))
        self.n_ubatch = int(self.lib.llama_n_ubatch(pointer))
        self.unified = config.mode == "shared"
        self._n_vocab = model.dims.n_vocab
        self._rows: dict[int, int] = {}  # index in the last batch -> row of logits
        self._view: NDArray[np.float32] | None = None
        # (address, rows) -> view: making one at every step costs
        self._views: dict[tuple[int, int], NDArray[np.float32]] = {}
        self.copying: set[int] = set()  # slots of whole-slot copies that the next decode carries out
        self._abort: object = None
        model.adopt(self)

    def _create(self, model: Model, config: ContextConfig, tap: Tap | None) -> int:
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = config.n_ctx, config.n_seq_max
        params.n_batch, params.n_ubatch = config.n_batch, min(config.n_ubatch, config.n_batch)
        params.n_threads = params.n_threads_batch = config.n_threads
        params.type_k, params.type_v = KV_TYPES[config.type_k], KV_TYPES[config.type_v]
        params.flash_attn_type = int(config.flash_attn)
        params.kv_unified = config.mode == "shared"
        params.offload_kqv = params.op_offload = model.n_gpu_layers != 0
        if tap is not None:
            params.cb_eval = tap.callback
        with library.captured_log() as lines, config.environment():
            pointer: int | None = self.lib.llama_init_from_model(model.pointer, params)
        self.creation_log = tuple(lines)
        if not pointer:
            raise EngineFailed(
                f"llama.cpp cannot make this context: {library.last_complaint(lines)}.",
                "Ask for fewer tokens or slots, or another type of cache.",
            )
        return pointer

    @property
    def pointer(self) -> int:
        """The C pointer. Raises EngineMisuse after `close`."""
        if self._pointer is None:
            raise EngineMisuse("This context was closed.", "Make a new one.")
        return self._pointer

    def close(self) -> None:
        """Free the cache. May be called twice."""
        self._pointer = None
        self._view = None
        self._views = {}
        self._rows = {}
        self._free()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pos_max(self, slot: int) -> int:
        """The last position that a slot holds, -1 when it is empty. Raises EngineMisuse."""
        self.check_slot(slot)
        return int(self.lib.llama_memory_seq_pos_max(self.memory, slot))

    def check_slot(self, slot: int) -> None:
        """Raises EngineMisuse when the slot does not exist, or the context was closed."""
        if self._pointer is None or not 0 <= slot < self.n_seq_max:
            self.pointer  # noqa: B018 - a closed context is reported first
            raise EngineMisuse(
                f"There is no slot {slot}.", f"This context has slots 0 to {self.n_seq_max - 1}."
            )

    def decode(self, batch: Batch) -> None:
        """Compute the batch: its K and V are in the cache afterwards, the wanted logits can be read.

        Raises EngineMisuse or BadBatch before anything is computed; NoSpace when the cells do not suffice
        (the cache is unchanged); DecodeAborted; EngineFailed; with a tap also what went wrong in its
        callback, after the decode.
        """
        pointer = self.pointer
        self._check(batch)
        self._rows = {}
        self._view = None
        if self.tap is not None:
            self.tap.begin()
        code = self.lib.llama_decode(pointer, batch.struct())
        self.copying.clear()
        if self.tap is not None:
            self.tap.raise_failure(complete=code == 0)
        if code != 0:
            raise self._failure(code, len(batch))
        self._rows = {index: row for row, index in enumerate(batch.wanted)}

    def _check(self, batch: Batch) -> None:
        count = len(batch)
        if count == 0:
            raise BadBatch("The batch is empty.", "Add a token first.")
        if count > self.n_batch:
            raise EngineMisuse(
                f"The batch has {count} tokens; this context takes {self.n_batch} at once.",
                "Decode it in chunks.",
            )
        if batch.most_slots > 1 and not self.unified:
            raise EngineMisuse(
                "A token of several slots needs shared cells.", "Make the context with mode shared."
            )
        for slot, (first, _) in batch.spans.items():
            last = self.pos_max(slot)
            if first != last + 1:
                holds = f"holds positions up to {last}" if last >= 0 else "is empty"
                raise BadBatch(
                    f"Slot {slot} {holds}, so its next position is {last + 1}, not {first}.",
                    "Continue where the slot ends, or remove its tail first.",
                )
        if batch.lowest < 0 or batch.highest >= self._n_vocab:
            raise BadBatch(
                "The batch holds a token id that the model does not have.",
                f"Ids go from 0 to {self._n_vocab - 1}.",
            )

    def _failure(self, code: int, count: int) -> Exception:
        if code == NO_SPACE:
            return NoSpace(f"There are no free KV cells for {count} tokens.", "Free a slot, then try again.")
        if code == ABORTED:
            return DecodeAborted("The decode was stopped.", "Remove what it left, or start afresh.")
        reason = library.last_complaint(library.log().tail(8))
        if code == INVALID:
            return BadBatch(f"llama.cpp refuses the batch: {reason}.", "Check its slots and positions.")
        return EngineFailed(f"llama.cpp failed with code {code}: {reason}.", "Start the engine again.")

    def _row(self, index: int) -> NDArray[np.float32]:
        row = self._rows.get(index)
        if row is None:
            raise EngineMisuse(
                f"You did not ask for logits of entry {index}.", "Add it with want_logits=True and decode."
            )
        values: NDArray[np.float32] = self.rows()[row]
        return values

    def rows(self) -> NDArray[np.float32]:
        """All wanted logits of the last decode, [wanted, vocabulary], in the order of the batch.

        This is llama.cpp's own memory: read it before the next decode, copy what you keep.
        """
        if self._view is None:
            if not self._rows:
                self.pointer  # noqa: B018
                raise EngineMisuse("The last decode asked for no logits.", "Ask with want_logits=True.")
            start = self.lib.llama_get_logits(self.pointer)
            at = ctypes.addressof(start.contents), len(self._rows)
            if at not in self._views:
                if len(self._views) >= MAX_VIEWS:
                    self._views.clear()
                self._views[at] = np.ctypeslib.as_array(start, shape=(at[1], self._n_vocab))
            self._view = self._views[at]
        return self._view

    def logits(self, index: int) -> NDArray[np.float32]:
        """A copy of the logits of batch entry `index`, float32 [vocabulary]. Raises EngineMisuse."""
        return self._row(index).copy()

    def argmax(self, index: int) -> int:
        """The most likely token after batch entry `index` (lowest id among ties), without a copy."""
        return int(self._row(index).argmax())

    def set_threads(self, count: int) -> None:
        """Use `count` threads from the next decode on; cheap, allowed between any two steps."""
        if count < 1:
            raise EngineMisuse(f"{count} threads cannot compute.", "Use 1 or more.")
        self.lib.llama_set_n_threads(self.pointer, count, count)

    def set_abort(self, should_stop: Callable[[], bool] | None) -> None:
        """Ask `should_stop` between graph nodes; True stops the decode, which then raises DecodeAborted.

        It runs inside C code, very often: it has to be quick and must not raise.
        """
        kind = self.lib.ggml_abort_callback
        callback = kind() if should_stop is None else kind(lambda _data: should_stop())
        self.lib.llama_set_abort_callback(self.pointer, callback, ctypes.c_void_p(0))
        self._abort = callback  # the C side keeps only its address


def _free(lib: Any, pointer: int, model: Model) -> None:
    """Free a context. Holding `model` here keeps it alive until then."""
    lib.llama_free(pointer)
