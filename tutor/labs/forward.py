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


class ForwardProducer(StepProducer):
    """One forward pass, captured whole, then shown block by block."""

    lab = "forward"

    def steps(self) -> Iterator[None]:
        ids = self.model.tokenize(str(self.knobs["prompt"]))
        self.record(
            ev.TextTokenized(
                str(self.knobs["prompt"]), tuple(ids), tuple(self.model.piece(i).hex() for i in ids)
            )
        )
        self.record(ev.Noted("One pass computed every layer at once; it is shown block by block."))
        num_layers = self.model.dims.n_layer
        shown = min(int(self.knobs["layer"]), num_layers - 1)
        suffix = f"-{shown}"
        tensors = self.model.capture(ids, lambda name: name.startswith("l_out-") or name.endswith(suffix))
        yield
        yield from self._graph(tensors, suffix)
        yield from self._lens(tensors, num_layers)
        self.record(logits_event(self.model, len(ids) - 1, self.model.next_logits(ids)))

    def _graph(self, tensors: dict[str, list[NDArray[np.float32]]], suffix: str) -> Iterator[None]:
        for name, seen in tensors.items():
            base = name.removesuffix(suffix)
            if name.endswith(suffix) and base in ROLES:
                shape = tuple(n for n in seen[-1].shape if n != 1) or (1,)
                self.record(ev.TensorSeen(name, ROLES[base], shape))
                yield

    def _lens(self, tensors: dict[str, list[NDArray[np.float32]]], num_layers: int) -> Iterator[None]:
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


KIND = LabKind(
    id="forward",
    title="Walk the graph, read every block",
    phenomenon="The answer surfaces only in the last blocks.",
    producer="tutor.labs.forward:ForwardProducer",
    knobs=(
        Knob(
            "prompt",
            "prompt",
            "text",
            "The capital of France is Paris and the capital of Italy is",
            "The text that the model continues.",
        ),
        Knob("layer", "layer", "int", 0, "The block whose graph nodes are listed.", 0, 200),
    ),
    panels=("tensors", "layers", "logits"),
    plain=forward_text,
)
