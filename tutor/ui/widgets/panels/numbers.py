"""Numbers of the model: likeliest tokens, the logit lens, the graph's tensors, KV buffers."""

from __future__ import annotations

from typing import ClassVar

from tutor.trace.events import CacheFilled
from tutor.trace.views import BufferView, LabView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, clip, legend, pad, printable

MIB = 2**20
EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int) -> str:
    """A bar of `share` (0 to 1) of `width` cells, in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(width)


class LogitsPanel(Panel):
    """The likeliest next tokens after the newest position."""

    TITLE: ClassVar[str] = "NEXT TOKEN"
    WHAT: ClassVar[str] = "The model has not run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.logits:
            return Picture(())
        last = view.logits[-1]
        room = max(6, width - 24)
        lines: list[Line] = []
        for index, (text, p) in enumerate(zip(last.texts, last.probabilities, strict=True)):
            style = "accent" if index == 0 else "text"
            shown = pad(printable(text).replace(" ", "␣"), 14)
            lines.append(((shown, style), (f"{p:7.1%}  ", "text"), (bar(p, room), "bar")))
        return Picture(tuple(lines), (), f"after position {last.position}, entropy {last.entropy:.2f} bits")


class LayersPanel(Panel):
    """The logit lens: what each layer would say if it were the last."""

    TITLE: ClassVar[str] = "LOGIT LENS"
    WHAT: ClassVar[str] = "No layer was read yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = [(("layer   norm  would say next", "muted"),)] if view.layers else []
        for index, layer in enumerate(view.layers):
            newest = index == len(view.layers) - 1
            pairs = zip(layer.texts, layer.probabilities, strict=True)
            runs = [(f"{layer.layer:5} {layer.norm:6.1f}  ", "now" if newest else "muted")]
            for rank, (text, p) in enumerate(list(pairs)[: max(1, (width - 14) // 17)]):
                cell = f"{pad(printable(text).replace(' ', '␣'), 11)}{p:4.0%}  "
                runs.append((cell, "accent" if rank == 0 else "text"))
            lines.append(tuple(runs))
        return Picture(tuple(lines), (), f"{len(view.layers)} layers read" if view.layers else "")

    @property
    def follows_end(self) -> bool:
        return True


class TensorsPanel(Panel):
    """The nodes of llama.cpp's compute graph in the order in which they ran."""

    TITLE: ClassVar[str] = "COMPUTE GRAPH"
    WHAT: ClassVar[str] = "No node was seen yet."

    def picture(self, view: LabView, width: int) -> Picture:
        lines: list[Line] = []
        room = max(8, width - 32)
        for index, tensor in enumerate(view.tensors):
            newest = index == len(view.tensors) - 1
            shape = "×".join(map(str, tensor.shape))
            lines.append(
                ((pad(tensor.name, 18), "accent" if newest else "text"), (pad(shape, 14), "bar"),
                 (clip(tensor.role, room), "now" if newest else "muted"))
            )  # fmt: skip
        return Picture(tuple(lines), (), f"{len(view.tensors)} nodes" if view.tensors else "")

    @property
    def follows_end(self) -> bool:
        return True


class BuffersPanel(Panel):
    """llama.cpp's KV buffers beside the formula's figure."""

    TITLE: ClassVar[str] = "KV BUFFERS"
    WHAT: ClassVar[str] = "No context was made yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.buffers:
            return Picture(())
        biggest = max(max(b.measured_bytes, b.formula_bytes) for b in view.buffers)
        room = max(6, min(40, width - 46))
        lines: list[Line] = []
        for buffer in view.buffers:
            lines += _buffer_lines(buffer, biggest, room)
        agree = sum(_agrees(buffer) for buffer in view.buffers)
        return Picture(tuple(lines), (), f"{agree} of {len(view.buffers)} formulas agree")

    @property
    def follows_end(self) -> bool:
        return True


def _agrees(buffer: BufferView) -> bool:
    """llama.cpp's log gives two decimals of a MiB, so half of the last one is rounding."""
    return abs(buffer.measured_bytes - buffer.formula_bytes) <= 0.005 * MIB + 1


def _buffer_lines(buffer: BufferView, biggest: int, room: int) -> list[Line]:
    same = buffer.type_k == buffer.type_v
    types = buffer.type_k if same else f"K {buffer.type_k} V {buffer.type_v}"
    head = f"{buffer.label}: n_ctx {buffer.n_ctx} → {buffer.num_cells} cells, {buffer.n_seq} seq, {types}"
    ok = _agrees(buffer)
    rows: list[Line] = [((head, "now"),)]
    for name, value, style in (
        ("llama.cpp", buffer.measured_bytes, "accent"), ("formula", buffer.formula_bytes, "bar")
    ):  # fmt: skip
        rows.append(((f"  {name:<10}{value / MIB:9.2f} MiB  ", "text"), (bar(value / biggest, room), style)))
    rows[-1] = (*rows[-1], (" ✓" if ok else " ✗ differs", "good" if ok else "bad"))
    return rows


class FillingPanel(Panel):
    """Caches of several types that take the same tokens: what is in use, and what was allocated for it."""

    TITLE: ClassVar[str] = "TOKEN BY TOKEN"
    WHAT: ClassVar[str] = "No token was stored yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.fillings:
            return Picture(())
        biggest = max(each.buffer_bytes for each in view.fillings)
        lines: list[Line] = []
        for each in view.fillings:
            lines += _filling_lines(each, biggest, width)
        lines += legend(
            "█ K and V of the tokens  ░ allocated, still empty  "
            "saved: as llama.cpp writes them, positions too",
            width,
        )
        first = view.fillings[0]
        return Picture(tuple(lines), (), f"{first.num_tokens} of {first.num_cells} cells")


def _filling_lines(each: CacheFilled, biggest: int, width: int) -> list[Line]:
    head = (
        f"{pad(each.kv_type, 5)} {each.formula_bytes // max(1, each.num_tokens):6,} bytes a token   "
        f"saved {each.state_bytes:,} bytes"
    )
    numbers = f"  {each.formula_bytes / MIB:6.2f} of {each.buffer_bytes / MIB:6.2f} MiB "
    room = max(4, width - len(numbers))
    allocated = max(1, round(each.buffer_bytes / biggest * room))
    used = bar(each.formula_bytes / each.buffer_bytes, allocated)
    empty = used.replace(" ", "░")
    return [((clip(head, width), "now"),), ((numbers, "text"), (empty, "bar")), ()]
