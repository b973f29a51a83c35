"""The PagedAttention lab: requests with a shared system prompt on the real engine, block tables live."""

from __future__ import annotations

from tutor.labs.plain import serving_text
from tutor.labs.scenario import Knob, Knobs, LabKind, default_threads
from tutor.llama.engine import LlamaEngine
from tutor.llama.messages import Abort, Submit
from tutor.llama.model import Model
from tutor.llama.worker import CommandRefused
from tutor.serving.config import EngineConfig
from tutor.serving.errors import ServingError
from tutor.trace.store import Sink

SYSTEM_PROMPT = (
    "Continue each list of numbers. Keep the same step between the numbers, write commas between them, "
    "and write nothing but numbers. Stop only when you are told to stop.\n"
)
# (first number, step, tokens to write). Number lists are golden prompts: the model's best next token leads
# the second best by more than 1.5 logits over these lengths, so that the order in which a shared cache sums
# its cells cannot change the text (tests/labs/test_paged_exactness.py measures the margins).
LISTS = ((3, 1, 40), (11, 10, 16), (31, 1, 56), (5, 1, 24), (51, 1, 32), (1, 1, 12), (41, 1, 48), (20, 1, 20))
NUMBERS_SHOWN = 8


def prompt_text(first: int, step: int) -> str:
    """The start of a list of numbers, ending in a comma."""
    return ", ".join(str(first + step * i) for i in range(NUMBERS_SHOWN)) + ","


def engine_config(knobs: Knobs) -> EngineConfig:
    return EngineConfig(
        max_num_seqs=int(knobs["max_num_seqs"]),
        max_num_batched_tokens=int(knobs["token_budget"]),
        block_size=int(knobs["block_size"]),
        num_blocks=int(knobs["num_blocks"]),
        batching=str(knobs["batching"]),
        chunked_prefill=bool(knobs["chunked_prefill"]),
        prefix_caching=bool(knobs["prefix_caching"]),
        max_parked=int(knobs["num_blocks"]),
    )


class PagedProducer:
    """Runs the requests step by step on one engine in shared mode."""

    def __init__(self, model: Model, knobs: Knobs, sink: Sink) -> None:
        self._engine = LlamaEngine(
            model,
            engine_config(knobs),
            mode="shared",
            threads=default_threads(),
            watch_cells=bool(knobs["cell_map"]),
        )
        self.header = self._engine.header("paged", dict(knobs))
        self._core = self._engine.start(sink)
        self._model = model
        self._system = model.tokenize(SYSTEM_PROMPT)
        self._knobs = knobs
        self._started = False

    def _start(self) -> None:
        """Requests are recorded after the header was sent, so this runs with the first step."""
        self._started = True
        for i, (first, step, max_tokens) in enumerate(LISTS[: int(self._knobs["requests"])]):
            label = chr(ord("A") + i)
            self._add(label.lower(), label, prompt_text(first, step), max_tokens)

    def _add(self, request_id: str, label: str, prompt: str, max_tokens: int) -> None:
        tokens = self._system + self._model.tokenize(prompt)
        # Fixed lengths keep runs comparable, so the end token does not end a list.
        request = self._engine.request(request_id, label, tokens, max_tokens, prompt=prompt, ignore_eos=True)
        self._core.add_request(request)

    def step(self) -> bool:
        if not self._started:
            self._start()
        self._core.step()
        return self._core.has_work

    def handle(self, command: Submit | Abort) -> None:
        try:
            if isinstance(command, Submit):
                self._add(command.request_id, command.label, command.prompt, command.max_tokens)
            else:
                self._core.abort(command.request_id)
        except (ServingError, ValueError) as error:
            raise CommandRefused(str(error)) from error

    def close(self) -> None:
        self._engine.close()


KIND = LabKind(
    id="paged",
    title="Paged KV cache",
    phenomenon="Requests hold scattered blocks and share those of a common prefix.",
    producer="tutor.labs.paged:PagedProducer",
    knobs=(
        Knob("requests", "requests", "int", 4, "How many requests arrive at once.", 1, len(LISTS)),
        Knob("max_num_seqs", "max_num_seqs", "int", 4, "How many requests may run at once (slots).", 1, 8),
        Knob("token_budget", "token budget", "int", 35, "Tokens a step may compute.", 8, 256),
        Knob(
            "block_size",
            "block size",
            "choice",
            "16",
            "Tokens a KV block holds.",
            choices=("4", "8", "16", "32"),
        ),
        Knob("num_blocks", "blocks", "int", 24, "KV blocks in the pool.", 4, 160),
        Knob(
            "batching",
            "batching",
            "choice",
            "continuous",
            "When waiting requests may join.",
            choices=("continuous", "static"),
        ),
        Knob("chunked_prefill", "chunked prefill", "bool", True, "Whether a prompt may be split over steps."),
        Knob("prefix_caching", "prefix cache", "bool", True, "Whether equal prefixes share blocks."),
        Knob("cell_map", "cell map", "bool", True, "Read llama.cpp's own cell map at every step."),
    ),
    panels=("slots", "blocks", "tables", "why", "queues", "cells"),
    plain=serving_text,
)
