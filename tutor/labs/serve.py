"""What `tutor serve --watch` shows and `tutor replay` plays of a server's trace. No lab runs it."""

from __future__ import annotations

from typing import NoReturn, get_args

from tutor.labs.plain import serving_text
from tutor.labs.scenario import Knob, Knobs, LabKind
from tutor.llama.config import KvType
from tutor.llama.errors import EngineMisuse
from tutor.llama.model import Model
from tutor.serving.config import CHOICES
from tutor.trace.store import Sink

MOST = 1 << 20


class ServedProducer:
    """Refuses to be made: the requests of a server come from its clients."""

    def __init__(self, model: Model, knobs: Knobs, sink: Sink) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EngineMisuse(
            "The trace of a server can be played, but not run again: its requests came from clients.",
            "Start one with tutor serve.",
        )


def _number(name: str, default: int, text: str) -> Knob:
    return Knob(name, name, "int", default, text, 0, MOST)


def _choice(name: str, default: str, text: str, choices: tuple[str, ...]) -> Knob:
    return Knob(name, name, "choice", default, text, choices=choices)


KIND = LabKind(
    id="serve",
    title="Server",
    phenomenon="Requests of clients share the slots, the token budget and the blocks of one engine.",
    producer="tutor.labs.serve:ServedProducer",
    knobs=(
        _number("max_num_seqs", 8, "How many requests may run at once (slots)."),
        _number("max_num_batched_tokens", 128, "Tokens a step may compute."),
        _number("num_blocks", 512, "KV blocks in the pool."),
        _number("block_size", 16, "Tokens a KV block holds."),
        Knob("prefix_caching", "prefix cache", "bool", True, "Whether equal prefixes share blocks."),
        _choice("kv_type", "bf16", "Type of K and V.", get_args(KvType)),
        _number("speculate", 0, "Longest draft of prompt lookup."),
        _choice("admission", "fcfs", "Who is admitted next.", CHOICES["admission"]),
        _choice("preemption", "recompute", "What becomes of a victim's KV.", CHOICES["preemption"]),
    ),
    panels=("slots", "blocks", "tables", "why", "queues"),
    plain=serving_text,
)
