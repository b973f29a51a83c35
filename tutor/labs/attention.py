"""The lab of *Attention through the lens of inference*: one head's map, then a new token that runs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tutor.labs.plain import heading
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.llama.batch import Batch
from tutor.llama.context import Context, ContextConfig
from tutor.llama.taps import Tap
from tutor.trace import events as ev
from tutor.trace.views import LabView, TokensView

MAX_TOKENS = 40  # one column a token still fits a terminal of 80 columns
DIGITS = 6


class AttentionProducer(StepProducer):
    """One pass over the text, shown row by row; then the model's next token, computed with one query row."""

    lab = "attention"
    mode = "f16, without flash attention"  # with it, probabilities never exist as a tensor

    def steps(self) -> Iterator[None]:
        text = str(self.knobs["text"])
        ids = self.model.tokenize(text)
        if len(ids) > MAX_TOKENS:
            self.record(ev.Noted(f"Only the first {MAX_TOKENS} of {len(ids)} tokens are shown."))
            ids = ids[:MAX_TOKENS]
        if not ids:
            self.record(ev.Noted("There is no text. Press k and write some."))
            return
        self._tokenized(ids)
        yield
        layer = min(int(self.knobs["layer"]), self.model.dims.n_layer - 1)
        with self._tapped(layer, len(ids) + 1) as context:
            logits, rows, num_queries = self._run(context, ids, 0, layer)
            for position in range(len(ids)):
                self._read(layer, position, num_queries, rows[:, position])
                if position == 0:
                    self.record(ev.Noted("The first token can only read itself."))
                elif position == 1:
                    self.record(
                        ev.Noted("Each row ends at its own token: the model's mask hides later ones.")
                    )
                yield
            new = int(logits.argmax())
            _, rows, num_queries = self._run(context, [new], len(ids), layer)
        self._tokenized([*ids, new])
        self._read(layer, len(ids), num_queries, rows[:, 0])
        self._say(new, len(ids), num_queries)

    def _tokenized(self, ids: Sequence[int]) -> None:
        text = self.model.detokenize(ids).decode("utf-8", "replace")
        self.record(ev.TextTokenized(text, tuple(ids), tuple(self.model.piece(i).hex() for i in ids)))

    def _tapped(self, layer: int, size: int) -> Context:
        """A context without flash attention, so that scores and probabilities exist as tensors."""
        config = ContextConfig(
            n_ctx=size, n_batch=size, n_ubatch=size, type_k="f16", type_v="f16", flash_attn=False
        )
        return Context(self.model.model, config, Tap((f"Qcur-{layer}", f"kq_soft_max-{layer}")))

    def _run(
        self, context: Context, ids: Sequence[int], start: int, layer: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
        """Compute `ids` from position `start` on: last logits, weights [heads, tokens, cells], rows of Q."""
        batch = Batch(len(ids), 1)
        for place, token in enumerate(ids):
            batch.add(token, start + place, (0,), True)  # all rows, also in the last layer
        context.decode(batch)
        assert context.tap is not None
        seen = context.tap.captured
        queries = seen[f"Qcur-{layer}"][-1].size // (self.model.dims.n_head * self.model.dims.head_dim)
        return context.logits(len(ids) - 1), seen[f"kq_soft_max-{layer}"][-1][0], queries

    def _read(self, layer: int, position: int, num_queries: int, weights: NDArray[np.float32]) -> None:
        """One row, weights [heads, cells]; the cells of all tokens of the text are kept, later ones too."""
        head = min(int(self.knobs["head"]), self.model.dims.n_head - 1)
        places = max(num_queries, position + 1)
        rows = tuple(tuple(round(float(w), DIGITS) for w in row[:places]) for row in weights)
        self.record(ev.AttentionRead(layer, head, self.model.dims.n_head_kv, position, num_queries, rows))

    def _say(self, new: int, past: int, num_queries: int) -> None:
        piece = self.model.piece(new).decode("utf-8", "replace")
        rows = "1 row" if num_queries == 1 else f"{num_queries} rows"
        self.record(
            ev.Noted(
                f"The new token {piece!r} ran alone: {rows} of Q. It read the K and V of {past} earlier "
                "tokens from the cache, and none of their queries."
            )
        )


def attention_text(view: LabView) -> str:
    """The newest row: what the chosen head read, then the favourite of every head."""
    lines = [heading(view), f"measured with {view.header.mode}", *([view.note] if view.note else [])]
    if not view.attention:
        return "\n".join(lines)
    row, names = view.attention[-1], _names(view.tokens[-1])
    group = len(row.weights) // row.num_kv_heads
    weights = row.weights[row.head]
    read = sorted(range(row.position + 1), key=lambda place: -weights[place])[:5]
    lines += [
        f"token {row.position} {names[row.position]} reads {row.position + 1} keys and values; "
        f"its pass computed {row.num_queries} row{'' if row.num_queries == 1 else 's'} of Q",
        f"layer {row.layer}, head {row.head} (KV head {row.head // group}): "
        + ", ".join(f"{names[place]} {weights[place]:.1%}" for place in read),
        f"later tokens: {sum(weights[row.position + 1 :]):.1%}",
    ]
    for head, given in enumerate(row.weights):
        best = max(range(row.position + 1), key=given.__getitem__)
        lines.append(f"  head {head} (KV head {head // group}): mostly {names[best]} {given[best]:.1%}")
    return "\n".join(lines)


def _names(tokens: TokensView) -> list[str]:
    return [repr(piece.decode("utf-8", "replace")) for piece in tokens.pieces]


KIND = LabKind(
    id="attention",
    title="What a token reads",
    phenomenon="A new token reads all old keys and values; old queries are never read again.",
    producer="tutor.labs.attention:AttentionProducer",
    knobs=(
        Knob("text", "text", "text", "The cat sat on the mat because it was tired", "Your sentence."),
        Knob(
            "layer",
            "layer",
            "int",
            13,
            "The layer that is looked into; later than the last is the last.",
            0,
            200,
        ),
        Knob("head", "head", "int", 8, "The query head whose map is drawn; 0 to 8 in SmolLM2.", 0, 200),
    ),
    panels=("attention", "reads", "heads"),
    plain=attention_text,
)
