"""The serving core on llama.cpp, put together: model, context, runner, recorder."""

from __future__ import annotations

import platform
import time
from functools import cache

from tutor.llama.cells import CellWatcher
from tutor.llama.config import ContextConfig, KvType, Mode
from tutor.llama.context import Context
from tutor.llama.model import Model, file_digest
from tutor.llama.probe import probe_known
from tutor.llama.runner import LlamaRunner, LogitsHook
from tutor.llama.threads import ThreadGovernor, idle_seconds
from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.errors import ConfigError
from tutor.serving.request import Request
from tutor.serving.sampling import SamplingParams
from tutor.serving.speculator import Speculator
from tutor.serving.tiering import Tiering
from tutor.trace.events import TraceHeader
from tutor.trace.store import Recorder, Sink


@cache
def end_tokens(model: Model) -> frozenset[int]:
    """All ids that end a generation (in SmolLM2 `<|im_end|>` and `<|endoftext|>`)."""
    return frozenset(token for token in range(model.dims.n_vocab) if model.is_eog(token))


class LlamaEngine:
    """An `EngineCore` over one context.

    mode "shared" has one pool of cells and real prefix sharing; "exact" gives bit-identical logits and
    needs `shared_cells=False`: llama.cpp keeps a cache of its own for each sequence there. With
    `adaptive_threads`, `threads` is the most that a step may use. `kv_type` is that of K and V: bf16 keeps
    exact mode exact, f16 computes long prompts faster, q8_0 and q4_0 take fewer bytes.
    """

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        *,
        mode: Mode = "shared",
        threads: int = 1,
        adaptive_threads: bool = False,
        kv_type: KvType = "bf16",
        flash_attn: bool = True,
        rotation: bool = True,
        watch_cells: bool = False,
        on_logits: LogitsHook | None = None,
    ) -> None:
        if mode == "exact" and config.shared_cells:
            raise ConfigError("Exact mode cannot share cells; set shared_cells and prefix_caching to False.")
        self.model = model
        self.config = config
        self.mode = mode
        cells = config.num_blocks * config.block_size
        self.context = Context(
            model,
            ContextConfig(
                mode=mode,
                n_ctx=cells if mode == "shared" else cells * config.max_num_seqs,
                n_seq_max=config.num_sequences,
                # llama.cpp asserts that a batch could hold one output a sequence.
                n_batch=max(config.max_num_batched_tokens, config.num_sequences),
                n_ubatch=max(config.max_num_batched_tokens, config.num_sequences),
                n_threads=threads,
                type_k=kv_type,
                type_v=kv_type,
                flash_attn=flash_attn,
                rotation=rotation,
                log_cells=watch_cells,
            ),
        )
        self._watch_cells = watch_cells
        self._adaptive = adaptive_threads
        self._on_logits = on_logits
        self.watcher: CellWatcher | None = None

    def header(self, lab: str, knobs: dict[str, str | int | float | bool] | None = None) -> TraceHeader:
        found = probe_known(self.model)
        return TraceHeader(
            lab=lab,
            clock="wall",
            provenance="measured",
            model=self.model.path.stem,
            model_digest=file_digest(self.model.path),
            hardware=f"{platform.machine()}, {self.context.config.n_threads} thread(s){self._on_gpu()}",
            mode=self.mode,
            exactness=found.summary if found is not None else "not probed yet: tutor doctor",
            block_size=self.config.block_size,
            num_blocks=self.config.num_blocks,
            max_num_seqs=self.config.max_num_seqs,
            max_num_batched_tokens=self.config.max_num_batched_tokens,
            knobs=knobs or {},
        )

    def _on_gpu(self) -> str:
        layers = self.model.n_gpu_layers
        return "" if layers == 0 else f", {layers if layers > 0 else 'all'} layers on the GPU"

    def start(
        self,
        sink: Sink | None = None,
        speculator: Speculator | None = None,
        tiering: Tiering | None = None,
    ) -> EngineCore:
        """Make the core; its records go to `sink`, if there is one."""
        keep = tiering.keep if tiering is not None else None
        runner = LlamaRunner(self.context, on_logits=self._on_logits, archive=keep, governor=self._governor())
        recorder = Recorder(sink, runner.now) if sink is not None else None
        core = EngineCore(self.config, runner, recorder, speculator, tiering)
        if self._watch_cells and recorder is not None:
            kv = core.scheduler.kv
            self.watcher = CellWatcher(kv.ledger, kv.table, self.config.block_size)
            runner.watch(self.watcher, recorder)
        return core

    def _governor(self) -> ThreadGovernor | None:
        """Chooses the threads of each step up to `threads`, by measured step time."""
        if not self._adaptive:
            return None
        most = self.context.config.n_threads
        return ThreadGovernor(most, self.context.set_threads, time.perf_counter, idle_seconds)

    def request(
        self,
        request_id: str,
        label: str,
        token_ids: list[int],
        max_tokens: int,
        *,
        prompt: str = "",
        sampling: SamplingParams | None = None,
        ignore_eos: bool = False,
    ) -> Request:
        """A request that ends at the model's end-of-generation tokens (unless `ignore_eos`)."""
        stops = frozenset() if ignore_eos else end_tokens(self.model)
        return Request(request_id, token_ids, max_tokens, label, prompt, sampling or SamplingParams(), stops)

    def close(self) -> None:
        self.context.close()
