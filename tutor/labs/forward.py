"""The lab of *The transformer forward pass*: the graph's nodes, and what each layer would predict."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tutor.labs.plain import forward_text
from tutor.labs.scenario import Knob, LabKind
from tutor.labs.steps import StepProducer
from tutor.labs.top import logits_event, top_tokens
from tutor.llama.sampler import softmax
from tutor.llama.taps import Change
from tutor.trace import events as ev

# What the nodes of a block compute; the names are llama.cpp's.
ROLES = {
    "attn_norm": "RMSNorm times its gain",
    "Qcur": "queries: projection, then rotation by position",
    "Kcur": "keys: projection, then rotation by position",
    "Vcur": "values: projection",
    "kq": "scores: query times key",
    "kq_soft_max": "attention probabilities",
    "kqv": "probabilities times values",
    "kqv_out": "heads side by side",
    "attn_out": "attention's output projection",
    "ffn_inp": "residual: state plus attention",
    "ffn_norm": "RMSNorm times its gain",
    "ffn_gate": "gate projection",
    "ffn_up": "up projection",
    "ffn_silu": "silu of the gate",
    "ffn_swiglu": "silu(gate) times up",
    "ffn_out": "down projection",
    "l_out": "residual: state plus FFN",
}


REMOVED = {"attention": "attn_out", "swiglu": "ffn_out"}  # the node that a half of a block adds to x
SPELT = {"attention": "attention", "swiglu": "SwiGLU"}
NOTHING = "nothing"
MAX_PROMPT = 200  # tokens

Tensors = dict[str, list[NDArray[np.float32]]]


class ForwardProducer(StepProducer):
    """One forward pass, captured whole, then shown block by block; one half of one block may be taken out."""

    lab = "forward"
    mode = "f16, without flash attention"  # with it, scores and probabilities never exist as tensors

    def steps(self) -> Iterator[None]:
        ids = self.model.tokenize(str(self.knobs["prompt"]))
        if not ids:
            self.record(ev.Noted("There is no prompt. Press k and write some."))
            return
        cut = len(ids) > MAX_PROMPT
        ids = ids[-MAX_PROMPT:]
        text = self.model.detokenize(ids).decode("utf-8", "replace")
        self.record(ev.TextTokenized(text, tuple(ids), tuple(self.model.piece(i).hex() for i in ids)))
        said = f"Only the last {MAX_PROMPT} tokens are used. " if cut else ""
        self.record(ev.Noted(f"{said}One pass ({self.mode}) computed every block; it is shown bit by bit."))
        num_layers = self.model.dims.n_layer
        layer = min(int(self.knobs["layer"]), num_layers - 1)
        tensors = self._pass(ids, layer, str(self.knobs["remove"]))
        yield
        yield from self._graph(tensors, f"-{layer}")
        yield from self._lens(tensors, num_layers)
        logits = self._last_logits(tensors)
        self.record(logits_event(self.model, len(ids) - 1, logits))
        self._say(ids, layer, logits)

    def _pass(self, ids: list[int], layer: int, remove: str) -> Tensors:
        """The nodes of one layer, the output of each layer and all logits; `remove`: what adds nothing."""

        def wanted(name: str) -> bool:
            return name == "result_output" or name.startswith("l_out-") or name.endswith(f"-{layer}")

        changes: dict[str, Change] = {} if remove == NOTHING else {f"{REMOVED[remove]}-{layer}": "zero"}
        return self.model.capture(ids, wanted, interventions=changes)

    def _last_logits(self, tensors: Tensors) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = tensors["result_output"][-1].reshape(-1, self.model.dims.n_vocab)
        last: NDArray[np.float32] = rows[-1]
        return last

    def _graph(self, tensors: Tensors, suffix: str) -> Iterator[None]:
        for name, seen in tensors.items():
            base = name.removesuffix(suffix)
            if name.endswith(suffix) and base in ROLES:
                shape = tuple(n for n in seen[-1].shape if n != 1) or (1,)
                self.record(ev.TensorSeen(name, ROLES[base], shape))
                yield

    def _lens(self, tensors: Tensors, num_layers: int) -> Iterator[None]:
        """Apply the final norm and the head to every layer's output (the logit lens)."""
        gain = self.model.weight("output_norm.weight")
        names = self.model.weight_names()
        head = self.model.weight("output.weight" if "output.weight" in names else "token_embd.weight")
        for layer in range(num_layers):
            state = tensors[f"l_out-{layer}"][-1].reshape(-1, self.model.dims.n_embd)[-1].astype(np.float64)
            normed = state / math.sqrt(float((state**2).mean()) + self.model.dims.rms_eps) * gain
            ids, texts, probabilities = top_tokens(self.model, softmax(head @ normed.astype(np.float32)), 3)
            self.record(ev.LayerComputed(layer, ids, texts, probabilities, float(np.linalg.norm(state))))
            yield

    def _say(self, ids: list[int], layer: int, logits: NDArray[np.float32]) -> None:
        """What took the lead and where, or what the missing half of a block changed."""
        remove = str(self.knobs["remove"])
        if remove == NOTHING:
            self.record(ev.Noted(f"The whole model says {self._top(logits)}."))
            return
        whole = self._last_logits(self.model.capture(ids, ["result_output"]))
        self.record(
            ev.Noted(
                f"Without the {SPELT[remove]} of block {layer}: {self._top(logits)}. "
                f"The whole model: {self._top(whole)}."
            )
        )

    def _top(self, logits: NDArray[np.float32]) -> str:
        _, (text,), (probability,) = top_tokens(self.model, softmax(logits), 1)
        return f"{text!r} with {probability:.0%}"


KIND = LabKind(
    id="forward",
    title="Walk the graph, read every block",
    phenomenon="The answer surfaces only in the last blocks; each block adds a little to the state.",
    producer="tutor.labs.forward:ForwardProducer",
    knobs=(
        Knob(
            "prompt",
            "prompt",
            "text",
            "The capital of France is Paris and the capital of Italy is",
            "The text that the model continues.",
        ),
        Knob(
            "layer",
            "block",
            "int",
            0,
            "The block whose nodes are listed, from 0; later than the last is the last.",
            0,
            200,
        ),
        Knob(
            "remove",
            "take out",
            "choice",
            NOTHING,
            "A half of that block that adds nothing to the hidden state.",
            choices=(NOTHING, *REMOVED),
        ),
    ),
    panels=("tensors", "layers", "logits"),
    plain=forward_text,
)
