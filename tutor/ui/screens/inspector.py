"""The life of a request, block or slot up to the cursor, and why everything happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tutor.trace.events import TraceRecord
from tutor.trace.history import Entry, block_history, request_history, slot_history
from tutor.trace.views import LabView


class InspectorScreen(ModalScreen[None]):
    """A titled list of lines that Esc closes."""

    CSS_PATH = "inspector.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,w", "dismiss", show=False)]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = tuple(lines)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="inspector"):
            yield Static(Content.styled(self._title, "bold $accent"), markup=False)
            yield Static("\n".join(self._lines), markup=False, classes="life")
            yield Static("Esc closes this.", markup=False, classes="foot")


def life_of(records: Sequence[TraceRecord], view: LabView, kind: str, key: str) -> tuple[str, list[str]]:
    """Title and lines about one thing: what it is now, then its history."""
    if kind == "request":
        return _request(records, view, key)
    if kind == "block":
        return _block(records, view, int(key))
    if kind == "position":
        from tutor.ui.widgets.panels.attention import position_story

        return position_story(view, key)
    slot = view.serving.slots[int(key)]
    holder = f"{slot.label}, {slot.phase}" if slot.request_id else "nobody"
    return f"Slot {key}", [f"Now: {holder}.", "", *_told(slot_history(records, int(key)))]


def _request(records: Sequence[TraceRecord], view: LabView, request_id: str) -> tuple[str, list[str]]:
    request = view.serving.request(request_id)
    if request is None:
        return f"Request {request_id}", ["It has not arrived at this step."]
    lines = [
        f"Now: {request.status}. {request.num_computed_tokens} tokens computed, {request.num_cached_tokens} "
        f"of them from the prefix cache; {request.num_output_tokens} of {request.max_tokens} written.",
        f"Blocks: {', '.join(map(str, request.block_ids)) or 'none'}.",
    ]
    if request.first_token_at is not None:
        ttft = request.first_token_at - request.arrived_at
        lines.append(f"First token {ttft:.2f} s after arrival (TTFT, waiting included).")
    return f"Request {request.label}", [*lines, "", *_told(request_history(records, request_id))]


def _block(records: Sequence[TraceRecord], view: LabView, block_id: int) -> tuple[str, list[str]]:
    block = view.serving.blocks[block_id]
    owners = ", ".join(block.owners) or "nobody"
    filled = f"{block.num_tokens} of {view.serving.block_size} tokens"
    lines = [f"Now: held by {owners} (ref_cnt {block.ref_cnt}), {filled}."]
    if block.block_hash:
        lines.append(f"Full and cached under hash {block.block_hash[:8]}.")
    return f"KV block {block_id}", [*lines, "", *_told(block_history(records, block_id))]


def _told(entries: Sequence[Entry]) -> list[str]:
    if not entries:
        return ["Nothing has happened to it yet."]
    return [f"step {entry.step:4}  {entry.ts:7.2f} s  {entry.text}" for entry in entries]
