"""The engine in full: conversations that come back, and a switch for every mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tutor import resources
from tutor.labs.paged import LISTS, SYSTEM_PROMPT, prompt_text
from tutor.labs.plain_serving import engine_text
from tutor.labs.scenario import Knob, Knobs, LabKind, default_threads
from tutor.labs.tier_costs import measured_costs
from tutor.llama.codec import make_codec
from tutor.llama.config import KvType, Mode
from tutor.llama.engine import LlamaEngine
from tutor.llama.messages import Abort, Submit
from tutor.llama.model import Model
from tutor.llama.worker import CommandRefused
from tutor.serving.config import EngineConfig
from tutor.serving.core import EngineCore
from tutor.serving.draft_length import FixedDraftLength
from tutor.serving.errors import ServingError
from tutor.serving.request import Request, RequestStatus
from tutor.serving.shelves import DiskShelf
from tutor.serving.speculative import PromptLookupDrafter
from tutor.serving.speculator import Speculator
from tutor.serving.tier_types import TierConfig
from tutor.serving.tiering import Tiering
from tutor.serving.tiers import TierStore
from tutor.trace.store import Sink

BLOCK_SIZE = 16
MIB = 1 << 20
COLD_BYTES = 256 * MIB
SECOND_TURN = len(LISTS)  # letters between a conversation's first turn and its second: the same colour


def engine_config(knobs: Knobs, longest: int) -> EngineConfig:
    """What the knobs ask for, as far as it works together; `notes` says what gave way.

    longest: tokens that the longest conversation may have.
    """
    shares = knobs["allocator"] == "paged" and knobs["mode"] == "shared"
    budget = int(knobs["token_budget"])
    return EngineConfig(
        max_num_seqs=int(knobs["max_num_seqs"]),
        max_num_batched_tokens=budget if knobs["chunked_prefill"] else max(budget, longest),
        block_size=BLOCK_SIZE,
        num_blocks=int(knobs["num_blocks"]),
        batching=str(knobs["batching"]),
        order=str(knobs["order"]),
        admission=str(knobs["admission"]),
        preemption=str(knobs["preemption"]),
        allocator=str(knobs["allocator"]),
        chunked_prefill=bool(knobs["chunked_prefill"]),
        prefix_caching=bool(knobs["prefix_caching"]) and shares,
        shared_cells=shares,
        max_parked=int(knobs["num_blocks"]),
    )


def notes(knobs: Knobs, config: EngineConfig) -> str:
    """What gave way to other knobs; empty for nothing."""
    said = []
    if knobs["prefix_caching"] and knobs["allocator"] == "contiguous":
        said.append("The contiguous allocator shares nothing, so the prefix cache is off.")
    elif knobs["prefix_caching"] and knobs["mode"] == "exact":
        said.append("Exact mode gives each slot a cache of its own, so the prefix cache is off.")
    if config.max_num_batched_tokens != knobs["token_budget"]:
        said.append(
            f"Without chunked prefill a step has to hold the longest conversation, so the token budget is "
            f"{config.max_num_batched_tokens}."
        )
    return " ".join(said)


class Tiers:
    """Warm host memory and a cold folder on disk, with prices measured on this machine."""

    def __init__(self, engine: LlamaEngine, knobs: Knobs, probe: list[int]) -> None:
        codec = make_codec(str(knobs["codec"]))
        self._disk = DiskShelf(resources.cache_dir() / "tiers")
        warm = TierConfig("warm", int(knobs["warm_mib"]) * MIB, codec.name)
        self.store = TierStore(
            (warm, TierConfig("cold", COLD_BYTES, codec.name)),
            measured_costs(engine.context, probe[: engine.context.n_batch], codec, self._disk),
            codecs={codec.name: codec},
            shelves={"cold": self._disk},
            block_size=BLOCK_SIZE,
            on_move=lambda move: self.core.tracer.moved(move),
        )
        self.core: EngineCore  # told once it exists; nothing moves before its first step

    def close(self) -> None:
        self._disk.close()


@dataclass(frozen=True)
class Conversation:
    """A first turn, and how many tokens its second turn may write (0: there is none)."""

    label: str
    prompt: str
    token_ids: list[int]
    first: int
    second: int


def conversations(model: Model, knobs: Knobs) -> list[Conversation]:
    """Number lists behind one system prompt. The turns share the tokens that the list is golden for."""
    system = model.tokenize(SYSTEM_PROMPT)
    made = []
    for i, (first, step, longest) in enumerate(LISTS[: int(knobs["requests"])]):
        total = min(longest, int(knobs["tokens"]))
        later = total // 2 if knobs["turns"] == 2 else 0
        prompt = prompt_text(first, step)
        tokens = system + model.tokenize(prompt)
        made.append(Conversation(chr(ord("A") + i), prompt, tokens, total - later, later))
    return made


class ServingProducer:
    """Runs conversations step by step; a finished first turn comes back with all of its text as a prompt."""

    def __init__(self, model: Model, knobs: Knobs, sink: Sink) -> None:
        mode = cast(Mode, str(knobs["mode"]))
        self._conversations = conversations(model, knobs)
        longest = max(len(c.token_ids) + c.first + c.second for c in self._conversations)
        config = engine_config(knobs, longest)
        self._engine = LlamaEngine(
            model,
            config,
            mode=mode,
            threads=default_threads(),
            kv_type=cast(KvType, str(knobs["kv_type"])),
            watch_cells=bool(knobs["cell_map"]) and mode == "shared",
        )
        self.header = self._engine.header("serving", dict(knobs))
        self._model = model
        self._system = model.tokenize(SYSTEM_PROMPT)
        self._tiers = Tiers(self._engine, knobs, self._system) if knobs["tiers"] else None
        tiering = Tiering(self._tiers.store) if self._tiers else None
        self._core = self._engine.start(sink, _speculator(knobs), tiering)
        if self._tiers:
            self._tiers.core = self._core
        self._note = notes(knobs, config)
        self._first_turns: list[tuple[Request, Conversation]] = []
        self._started = False

    def _start(self) -> None:
        """Requests are recorded after the header was sent, so this runs with the first step."""
        self._started = True
        if self._note:
            self._core.tracer.noted(self._note)
        for place, c in enumerate(self._conversations):
            request = self._request(c.label.lower(), c.label, c.token_ids, c.first, c.prompt)
            request.priority = len(self._conversations) - place  # later ones are more urgent
            self._core.add_request(request)
            self._first_turns.append((request, c))

    def _request(
        self, request_id: str, label: str, tokens: list[int], max_tokens: int, prompt: str
    ) -> Request:
        # Fixed lengths keep runs comparable, so the end token does not end a list.
        return self._engine.request(request_id, label, tokens, max_tokens, prompt=prompt, ignore_eos=True)

    def _second_turns(self) -> None:
        """Conversations whose first turn is done ask for more. Their priority of 0 is the most urgent."""
        running = [pair for pair in self._first_turns if not pair[0].status.is_finished]
        for first, c in self._first_turns:
            if first.status is RequestStatus.FINISHED_LENGTH and c.second:
                label = chr(ord(c.label) + SECOND_TURN)
                prompt = f"second turn of {c.label}, with all its text"
                self._core.add_request(
                    self._request(f"{first.request_id}2", label, first.token_ids, c.second, prompt)
                )
        self._first_turns = running

    def step(self) -> bool:
        if not self._started:
            self._start()
        self._core.step()
        self._second_turns()
        return self._core.has_work

    def handle(self, command: Submit | Abort) -> None:
        try:
            if isinstance(command, Submit):
                tokens = self._system + self._model.tokenize(command.prompt)
                self._core.add_request(
                    self._request(
                        command.request_id, command.label, tokens, command.max_tokens, command.prompt
                    )
                )
            else:
                self._core.abort(command.request_id)
        except (ServingError, ValueError) as error:
            raise CommandRefused(str(error)) from error

    def close(self) -> None:
        if self._tiers:
            self._tiers.close()
        self._engine.close()


def _speculator(knobs: Knobs) -> Speculator | None:
    if knobs["speculation"] == "off":
        return None
    return Speculator(PromptLookupDrafter(), FixedDraftLength(int(knobs["draft_tokens"])))


def _choice(name: str, label: str, group: str, help_text: str, *choices: str) -> Knob:
    return Knob(name, label, "choice", choices[0], help_text, choices=choices, group=group)


KNOBS = (
    Knob("requests", "requests", "int", 4, "How many conversations begin at once.", 1, len(LISTS),
         group="LOAD"),
    Knob("turns", "turns", "int", 2, "2: each comes back with all of its text.", 1, 2, group="LOAD"),
    Knob("tokens", "tokens", "int", 32, "Most tokens a conversation writes.", 2, 56, group="LOAD"),
    Knob("max_num_seqs", "max_num_seqs", "int", 3, "Requests that may run at once.", 1, 8, group="SIZES"),
    Knob("token_budget", "token budget", "int", 24, "Tokens a step may compute.", 8, 256, group="SIZES"),
    Knob("num_blocks", "blocks", "int", 12, "KV blocks of 16 tokens in the pool.", 8, 160, group="SIZES"),
    _choice("speculation", "drafts", "SPECULATION", "Who guesses the next tokens.", "off", "lookup"),
    Knob("draft_tokens", "draft length", "int", 3, "Guesses a step.", 1, 8, group="SPECULATION"),
    _choice("admission", "admission", "SCHEDULING", "Who is next among those that wait.",
            "fcfs", "priority", "shortest", "longest_prefix"),
    _choice("batching", "batching", "SCHEDULING", "When waiting requests may join.", "continuous", "static"),
    _choice("order", "order", "SCHEDULING", "Who gets the budget first.", "decode_first", "prefill_first"),
    Knob("chunked_prefill", "chunked prefill", "bool", True, "Whether a prompt may be split over steps.",
         group="SCHEDULING"),
    _choice("preemption", "preemption", "SCHEDULING", "What becomes of a victim's KV.", "recompute", "swap"),
    _choice("allocator", "allocator", "MEMORY", "Blocks as needed, or one run for the longest answer.",
            "paged", "contiguous"),
    Knob("prefix_caching", "prefix cache", "bool", True, "Whether equal prefixes share blocks.",
         group="MEMORY"),
    _choice("mode", "mode", "MEMORY", "One pool of cells, or a cache for each slot: then logits are exact.",
            "shared", "exact"),
    _choice("kv_type", "K and V", "MEMORY", "The type of cached numbers.", "bf16", "f16", "q8_0", "q4_0"),
    Knob("cell_map", "cell map", "bool", True, "Compare with llama.cpp's own cells (shared mode).",
         group="MEMORY"),
    Knob("tiers", "tiers", "bool", False, "Keep finished sequences in host memory, then on disk.",
         group="TIERS"),
    _choice("codec", "codec", "TIERS", "How saved sequences are packed; turbo loses a little.",
            "none", "turbo4", "turbo3", "turbo2"),
    Knob("warm_mib", "host memory", "int", 4, "MiB for saved sequences; the rest goes to disk.", 0, 64,
         group="TIERS"),
)  # fmt: skip

KIND = LabKind(
    id="serving",
    title="The engine in full",
    phenomenon="Every mechanism has a switch: turn one off, run again, and compare what it was worth.",
    producer="tutor.labs.serving:ServingProducer",
    knobs=KNOBS,
    panels=("slots", "worth", "blocks", "memory", "queues", "why", "cells"),
    plain=engine_text,
)
