"""The reference model: what checks, lessons and labs ask the real model. Exact mode unless said otherwise.

Not for serving: every answer is made to be repeatable first, fast second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tutor.llama import gguf_file, kv
from tutor.llama.batch import Batch
from tutor.llama.bpe import read_merges, vocabulary_bytes
from tutor.llama.chat import Part, chat_parts
from tutor.llama.context import Context, ContextConfig, KvType, Mode
from tutor.llama.errors import EngineFailed, EngineMisuse
from tutor.llama.model import Model, ModelDims, file_digest, find_model
from tutor.llama.session import Session
from tutor.llama.taps import Change, Tap

Logits = NDArray[np.float32]
CHUNK = 512
FIRST_ROOM = 1024
KV_LINE = re.compile(r"size =\s*([\d.]+) MiB \(\s*(\d+) cells,\s*\d+ layers,\s*\d+/(\d+) seqs\)")
MIB = 1 << 20


class ReferenceModel:
    """One loaded model and one exact context whose cache grows with what is asked. Not thread-safe.

    `n_threads` changes the speed only, never a bit of an answer in exact mode.
    """

    def __init__(self, model: Model, n_threads: int = 1) -> None:
        self.model = model
        self.n_threads = n_threads
        self.path = model.path
        self.name: str = model.name
        self.dims: ModelDims = model.dims
        self._batch = Batch(CHUNK, 1)
        self._context: Context | None = None
        self._held: list[int] = []  # the ids whose K and V are in the cache
        self._weights: dict[str, NDArray[np.float32]] = {}

    @classmethod
    def load(cls, path: str | None = None, n_threads: int = 1) -> ReferenceModel:
        """Load the model that `find_model(path)` names.

        Raises EngineUnavailable, ModelNotFound or BrokenModel.
        """
        return cls(Model.load(find_model(path)), n_threads)

    def close(self) -> None:
        """Free the model and every context made from it."""
        self._context = None
        self._held = []
        self.model.close()

    def __enter__(self) -> ReferenceModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the model file, hex."""
        return file_digest(self.path)

    # text

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Text → ids; see Model.tokenize."""
        return self.model.tokenize(text, special)

    def piece(self, token: int) -> bytes:
        """The bytes of one token."""
        return self.model.piece(token)

    def detokenize(self, ids: Iterable[int]) -> bytes:
        """The bytes of several tokens."""
        return self.model.detokenize(ids)

    def is_eog(self, token: int) -> bool:
        """Does this token end a generation?"""
        return self.model.is_eog(token)

    def chat_parts(self, messages: Sequence[Mapping[str, str]]) -> list[Part]:
        """The file's chat template as (text, is_markup) parts, up to where the answer starts."""
        template = self.model.chat_template
        if template is None:
            raise EngineMisuse("This model has no chat template.", "Use a model that was tuned for chat.")
        bos, eos = self._special_text(self.model.bos), self._special_text(self.model.eos)
        return chat_parts(template, messages, bos=bos, eos=eos)

    def chat_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The ids of a chat: markup with special tokens, contents without."""
        return [i for text, markup in self.chat_parts(messages) for i in self.tokenize(text, special=markup)]

    def _special_text(self, token: int) -> str:
        return "" if token < 0 else self.piece(token).decode("utf-8", "replace")

    # forward

    def next_logits(self, ids: Sequence[int]) -> Logits:
        """The logits after `ids`, float32 [vocabulary]. What the last call computed is not computed again.

        Raises EngineMisuse for an empty list, an unknown id or more ids than the model was trained for.
        """
        ids = self._checked(ids)
        context = self._context_for(len(ids))
        kept = min(_common_prefix(self._held, ids), len(ids) - 1)
        kv.seq_rm(context, 0, kept, -1)
        del self._held[kept:]
        for start in range(kept, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            self._batch.clear()
            self._batch.add_run(chunk, start, 0, start + len(chunk) == len(ids))
            context.decode(self._batch)
            self._held.extend(chunk)
        return context.logits(len(self._batch) - 1)

    def greedy(self, ids: Sequence[int], max_tokens: int, stop_at_eog: bool = True) -> list[int]:
        """The most likely continuation. An end-of-generation token is part of the answer, as its last id."""
        sequence = list(ids)
        while len(sequence) - len(ids) < max_tokens:
            token = int(self.next_logits(sequence).argmax())
            sequence.append(token)
            if stop_at_eog and self.is_eog(token):
                break
        return sequence[len(ids) :]

    def capture(
        self,
        ids: Sequence[int],
        names: Iterable[str] | Callable[[str], bool],
        flash_attn: bool = False,
        kv: KvType = "f16",
        last_only: bool = False,
        interventions: Mapping[str, Change] | None = None,
    ) -> dict[str, list[NDArray[Any]]]:
        """Tensors of one forward pass over `ids` in an empty cache, by name.

        One array for each time a node of that name was computed, in order (`Qcur-0` three times: projected,
        split into heads, rotated), always four-dimensional in numpy order: [1, T, heads, head_dim], [1, 1, T,
        width]; `kq_soft_max-L` is [1, heads, T, cells], cells beyond T being 0. Every entry asks for logits,
        so the last layer and the head have all T rows; with `last_only` they have the last row alone.
        Without flash attention scores and probabilities exist as tensors. `interventions` change tensors on
        the way (see Tap). Raises EngineMisuse for a name that
        the pass did not compute.
        """
        ids = self._checked(ids)
        wanted = names if callable(names) else tuple(names)
        tap = Tap(wanted, interventions)
        size = len(ids)
        config = ContextConfig(
            n_ctx=size,
            n_batch=size,
            n_ubatch=size,
            n_threads=self.n_threads,
            type_k=kv,
            type_v=kv,
            flash_attn=flash_attn,
        )
        batch = Batch(size, 1)
        for pos, token in enumerate(ids):
            batch.add(token, pos, (0,), not last_only or pos == size - 1)
        with Context(self.model, config, tap) as context:
            context.decode(batch)
        missing = [] if callable(wanted) else [name for name in wanted if name not in tap.captured]
        if missing:
            raise EngineMisuse(
                f"The forward pass computed no tensor named {missing[0]!r}.",
                "Some names: Qcur-0, kqv_out-0, ffn_out-0, l_out-0, result_norm, result_output.",
            )
        return tap.captured

    # the file

    def weight(self, name: str) -> NDArray[np.float32]:
        """A weight as float32, dequantised, [out, in] for a matrix; names as in the file
        ("blk.0.attn_q.weight", "token_embd.weight"). The array is kept and is read-only.
        """
        if name not in self._weights:
            values = gguf_file.read_weight(self.path, self._header, name)
            values.flags.writeable = False
            self._weights[name] = values
        return self._weights[name]

    def weight_names(self) -> list[str]:
        """Names of all tensors of the file."""
        return list(self._header.tensors)

    def merges(self) -> list[tuple[bytes, bytes]]:
        """The BPE merges, the most important (rank 0) first."""
        return read_merges(gguf_file.read_strings(self.path, self._header, "tokenizer.ggml.merges"))

    def vocab_bytes(self) -> list[bytes]:
        """The bytes of every token, by id. Control tokens give their name, such as `<|im_end|>`."""
        return vocabulary_bytes(gguf_file.read_strings(self.path, self._header, "tokenizer.ggml.tokens"))

    @cached_property
    def _header(self) -> gguf_file.Header:
        return gguf_file.read_header(self.path)

    # contexts

    def kv_buffer_bytes(
        self,
        n_ctx: int,
        n_seq: int = 1,
        type_k: KvType = "f16",
        type_v: KvType = "f16",
        unified: bool = True,
    ) -> tuple[int, int]:
        """Make a context and report (cells of all slots, bytes of K and V) as llama.cpp logs them.

        The log gives MiB with two decimals, so the bytes are right to 0.005 MiB.
        """
        mode: Mode = "shared" if unified else "exact"
        config = ContextConfig(mode, n_ctx, n_seq, n_batch=32, n_ubatch=32, type_k=type_k, type_v=type_v)
        with Context(self.model, config) as context:
            found = [match for line in context.creation_log if (match := KV_LINE.search(line))]
        if not found:
            raise EngineFailed("llama.cpp did not log the size of its KV buffer.", "Use version 0.3.36.")
        mib, cells, parts = found[-1].groups()
        return int(cells) * int(parts), round(float(mib) * MIB)

    def session(self, n_ctx: int, n_seq: int = 1, mode: Mode = "exact") -> Session:
        """A context of its own with `n_seq` slots; `n_ctx` cells of all slots together. Close it."""
        return Session(self.model, ContextConfig(mode, n_ctx, n_seq, n_threads=self.n_threads))

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """The ids as plain ints (numpy's are welcome). Raises EngineMisuse."""
        try:
            plain = [index(token) for token in ids]
        except TypeError as error:
            raise EngineMisuse("A token id is not a whole number.", "Pass a list of int.") from error
        if not plain:
            raise EngineMisuse("The model needs one token at least.", "Pass a list of ids that is not empty.")
        wrong = next((token for token in plain if not 0 <= token < self.dims.n_vocab), None)
        if wrong is not None:
            raise EngineMisuse(f"There is no token {wrong}.", f"Ids go from 0 to {self.dims.n_vocab - 1}.")
        if len(plain) > self.dims.n_ctx_train:
            raise EngineMisuse(
                f"{len(plain)} tokens are more than the model was trained for.",
                f"Pass at most {self.dims.n_ctx_train}.",
            )
        return plain

    def _context_for(self, tokens: int) -> Context:
        """The cached context, made anew with twice the room when `tokens` do not fit."""
        if self._context is None or self._context.n_ctx_seq < tokens:
            room = max(FIRST_ROOM, 2 * tokens)
            if self._context is not None:
                self._context.close()
            config = ContextConfig(n_ctx=room, n_batch=CHUNK, n_threads=self.n_threads)
            self._context = Context(self.model, config)
            self._held = []
        return self._context


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading ids two sequences share."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
