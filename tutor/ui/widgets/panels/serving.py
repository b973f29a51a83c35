"""Slots with their timelines, the queues, and the decisions with their reasons."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from tutor.trace.views import LabView, RequestView, ServingView, SlotView
from tutor.ui.widgets.panels.base import (
    Item,
    Line,
    Panel,
    Picture,
    Run,
    clip,
    legend,
    owner_style,
    pad,
    printable,
)

PHASES = {"prefill": "▓", "decode": "▒", "held": "·", "idle": " "}


class SlotsPanel(Panel):
    """One line a slot: who runs there, the last steps, the text so far."""

    TITLE: ClassVar[str] = "SLOTS"
    WHAT: ClassVar[str] = "No slot is in use yet."

    def picture(self, view: LabView, width: int) -> Picture:
        serving = view.serving
        lane = max(8, min(40, width - 40))
        lines = [_slot_line(slot, serving, lane, width) for slot in serving.slots]
        items = tuple(Item("slot", str(slot.slot), 0, y, 12) for y, slot in enumerate(serving.slots))
        lines += [(), *legend("▓ prefill  ▒ decode  · held, not run  █ this step", width)]
        last = serving.last
        note = f"{last.num_tokens} of {last.token_budget} tokens this step" if last else ""
        return Picture(tuple(lines), items, note)


def _slot_line(slot: SlotView, serving: ServingView, lane: int, width: int) -> Line:
    request = serving.request(slot.request_id) if slot.request_id else None
    style = owner_style(slot.label)
    runs: list[Run] = [(f"{slot.slot} ", "muted"), (pad(slot.label, 2), style), (pad(slot.phase, 8), "text")]
    recent = slot.timeline[-lane:]
    for index, (label, phase) in enumerate(recent):
        now = index == len(recent) - 1 and phase in ("prefill", "decode")
        runs.append(("█" if now else PHASES[phase], owner_style(label)))
    runs.append((" " * (lane - len(recent)), ""))
    if request is not None:
        room = width - 12 - lane - 1
        runs.append((" " + clip(_doing(request), room), "text"))
    return tuple(runs)


def _doing(request: RequestView) -> str:
    if request.num_output_tokens == 0:
        return f"{request.num_computed_tokens}/{request.num_prompt_tokens} of the prompt"
    text = printable(request.text)
    return f"{request.num_output_tokens}/{request.max_tokens} “…{text[-40:]}”"


class QueuesPanel(Panel):
    """Who waits, who was preempted, who is done."""

    TITLE: ClassVar[str] = "REQUESTS"
    WHAT: ClassVar[str] = "No request has arrived yet."

    def picture(self, view: LabView, width: int) -> Picture:
        serving = view.serving
        lines: list[Line] = []
        items: list[Item] = []
        for status in ("waiting", "preempted", "running", "finished"):
            runs: list[Run] = [(pad(status, 11), "muted")]
            x = 11
            for request in (r for r in serving.requests if r.status == status):
                text = f"{request.label}{_detail(request)}"
                if x + len(text) + 2 > width and x > 11:
                    lines.append(tuple(runs))
                    runs, x = [(" " * 11, "")], 11
                items.append(Item("request", request.request_id, x, len(lines), len(text)))
                runs += [(request.label, owner_style(request.label)), (_detail(request), "text"), ("  ", "")]
                x += len(text) + 2
            lines.append((*runs, ("–", "muted")) if x == 11 else tuple(runs))
        if serving.prefix_queries:
            rate = serving.prefix_hits / serving.prefix_queries
            note = f"prefix cache: {serving.prefix_hits} of {serving.prefix_queries} tokens hit ({rate:.0%})"
        else:
            note = ""
        return Picture(tuple(lines), tuple(items), note)


def _detail(request: RequestView) -> str:
    if request.status == "finished":
        return f" {request.num_output_tokens} {request.finish_reason}"
    if request.status == "running":
        return f" {request.num_computed_tokens} computed"
    return f"({request.num_prompt_tokens})"


class WhyPanel(Panel):
    """The newest decisions, newest first."""

    TITLE: ClassVar[str] = "WHY"
    WHAT: ClassVar[str] = "Nothing was decided yet."

    def picture(self, view: LabView, width: int) -> Picture:
        serving = view.serving
        lines: list[Line] = []
        if serving.last is not None:
            for share in serving.last.scheduled:
                request = serving.request(share.request_id)
                label = request.label if request else "?"
                text = f"{share.num_tokens} tok {share.phase}: {share.reason}"
                lines += _folded(label, text, width, "now")
            if serving.last.reason:
                lines += [((clip(serving.last.reason, width), "text"),)]
        lines.append((("earlier decisions", "muted"),))
        for decision in reversed(serving.decisions):
            label, _, text = decision.partition(" ")
            lines += _folded(label, text, width, "text")
        return Picture(tuple(lines))


def _folded(label: str, text: str, width: int, style: str) -> list[Line]:
    parts = textwrap.wrap(text, max(10, width - 2)) or [""]
    first: Line = ((f"{label} ", owner_style(label)), (parts[0], style))
    return [first, *(((f"  {part}", style),) for part in parts[1:])]
