"""Misuses the façade in every way that llama.cpp would answer by ending the process, and reports each.

Run as a child: `python misuse_child.py`. Prints one JSON line a case: the exception's name and text, and the
token that a decode gives right after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tutor.llama import kv
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.model import Model, find_model

PROMPT = "The capital of France is"
CONFIG = ContextConfig(n_ctx=512, n_seq_max=2, n_batch=32, n_ubatch=32)


def batch_of(*entries: tuple[int, int, tuple[int, ...]]) -> Batch:
    batch = Batch(64)
    for token, pos, slots in entries:
        batch.add(token, pos, slots, True)
    return batch


def next_token(context: Context) -> int:
    """Slot 0 emptied and filled with the prompt: the same token every time."""
    kv.seq_rm(context, 0)
    batch = Batch(32, 1)
    last = batch.add_run(context.model.tokenize(PROMPT), 0, 0, True)
    context.decode(batch)
    return context.argmax(last)


def foreign_blob(model: Model) -> bytes:
    with Context(model, ContextConfig(n_ctx=256, type_k="f16", type_v="f16")) as other:
        next_token(other)
        return kv.save(other, 0)


def rewind(context: Context) -> None:
    context.decode(batch_of((11, 2, (0,))))


def open_cases(model: Model, context: Context) -> dict[str, Callable[[], object]]:
    """Misuses of a context whose slot 0 holds positions 0 to 4."""
    size = context.n_batch + 1
    own = kv.save(context, 0)
    foreign = foreign_blob(model)
    return {
        "partial seq_cp": lambda: kv.seq_cp(context, 0, 1, 0, 3),
        "seq_cp of nothing": lambda: kv.seq_cp(context, 1, 0),
        "too many tokens": lambda: context.decode(batch_of(*((11, 5 + i, (0,)) for i in range(size)))),
        "position gap": lambda: context.decode(batch_of((11, 9, (0,)))),
        "gap inside a batch": lambda: batch_of((11, 5, (0,)), (11, 7, (0,))),
        "rewind": lambda: rewind(context),
        "seq_add on bf16": lambda: kv.seq_add(context, 0, 1, -1, -1),
        "logits not asked for": lambda: context.logits(0),
        "unknown slot": lambda: context.decode(batch_of((11, 0, (2,)))),
        "unknown slot of an operation": lambda: kv.seq_rm(context, -1),
        "token of two slots": lambda: context.decode(batch_of((11, 5, (0, 1)))),
        "unknown token": lambda: context.decode(batch_of((model.dims.n_vocab, 5, (0,)))),
        "empty batch": lambda: context.decode(Batch(4)),
        "more slots than n_batch": lambda: Context(model, ContextConfig(n_seq_max=8, n_batch=4)),
        "more slots than n_ctx": lambda: Context(model, ContextConfig(n_seq_max=8, n_ctx=4)),
        "more slots than llama.cpp has": lambda: Context(model, ContextConfig(n_seq_max=9999, n_ctx=9999)),
        "blob of another cache type": lambda: kv.restore(context, 1, foreign),
        "blob cut short": lambda: kv.restore(context, 1, own[:-7]),
        "blob of noise": lambda: kv.restore(context, 1, bytes(range(256)) * 9),
        "empty blob": lambda: kv.restore(context, 1, b""),
        "more layers than there is a GPU for": lambda: Model.load(model.path, n_gpu_layers=-1),
    }


def closed_cases(context: Context, batch: Batch) -> dict[str, Callable[[], object]]:
    model = context.model
    return {
        "decode of a closed context": lambda: context.decode(batch),
        "logits of a closed context": lambda: context.rows(),
        "seq_rm of a closed context": lambda: kv.seq_rm(context, 0),
        "save of a closed context": lambda: kv.save(context, 0),
        "threads of a closed context": lambda: context.set_threads(1),
        "tokenize of a closed model": lambda: model.tokenize("a"),
        "piece of a closed model": lambda: model.piece(70),
        "context of a closed model": lambda: Context(model, CONFIG),
    }


def outcome(name: str, misuse: Callable[[], object], then: Callable[[], int]) -> None:
    try:
        misuse()
    except Exception as error:  # noqa: BLE001 - which one it is, is what the parent judges
        kind, text = type(error).__name__, str(error)
    else:
        kind, text = "nothing raised", ""
    print(json.dumps({"case": name, "kind": kind, "text": text, "token": then()}), flush=True)


def main() -> None:
    with Model.load(find_model()) as model, Context(model, CONFIG) as context:
        next_token(context)
        for name, misuse in open_cases(model, context).items():
            outcome(name, misuse, lambda: next_token(context))
        batch = batch_of((11, 0, (0,)))
        with Model.load(find_model()) as closed:
            old = Context(closed, CONFIG)
        for name, misuse in closed_cases(old, batch).items():
            outcome(name, misuse, lambda: next_token(context))


main()
