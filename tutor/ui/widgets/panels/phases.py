"""Prefill and decode of a request: what each phase took, and all passes along one time axis."""

from __future__ import annotations

from typing import ClassVar

from tutor.metrics.phases import PhaseTotals, phase_totals
from tutor.trace.events import PassRun
from tutor.trace.views import LabView
from tutor.ui.widgets.panels.base import Line, Panel, Picture, Run, clip, legend, pad
from tutor.ui.widgets.panels.numbers import bar

STYLES = {"prefill": "accent", "decode": "bar"}


class PhasesPanel(Panel):
    """For each run and phase: rows, passes, rows of logits, time, and tokens a second as a bar."""

    TITLE: ClassVar[str] = "PHASES"
    WHAT: ClassVar[str] = "No pass was run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        totals = phase_totals(view.passes)
        if not totals:
            return Picture(())
        fastest = max(total.tokens_per_second for total in totals)
        newest = view.passes[-1]
        lines: list[Line] = [((clip("           rows passes logits      ms  tok/s", width), "muted"),)]
        for run in dict.fromkeys(total.run for total in totals):
            phases = [total for total in totals if total.run == run]
            lines.append(((clip(run, width), "now" if run == newest.run else "text"),))
            lines += [_phase_line(total, fastest, width) for total in phases]
            lines += [(("  " + part, "muted"),) for part in _waits(view.passes, phases, width - 2)]
        return Picture(tuple(lines), (), f"{len(view.passes)} passes")


def _phase_line(total: PhaseTotals, fastest: float, width: int) -> Line:
    numbers = (
        f"  {pad(total.phase, 8)}{total.num_tokens:5} {total.num_passes:6} {total.num_outputs:6} "
        f"{total.duration * 1000:7.1f} {total.tokens_per_second:6.1f} "
    )
    room = width - len(numbers)
    style = STYLES[total.phase]
    if room < 4:
        return ((clip(numbers, width), style),)
    return ((numbers, "text"), (bar(total.tokens_per_second / fastest, room), style))


def _waits(passes: tuple[PassRun, ...], phases: list[PhaseTotals], width: int) -> list[str]:
    """TTFT, TPOT and how many times faster a token is in prefill; nothing before decode began."""
    by_phase = {total.phase: total for total in phases}
    if "decode" not in by_phase:
        return []
    decode, prefill = by_phase["decode"], by_phase["prefill"]
    mine = [each for each in passes if each.run == decode.run]
    first = max(each.start + each.duration for each in mine if each.phase == "prefill")
    last = mine[-1].start + mine[-1].duration
    ratio = prefill.tokens_per_second / decode.tokens_per_second
    parts = (
        f"TTFT {first * 1000:.0f} ms",
        f"TPOT {(last - first) / decode.num_passes * 1000:.1f} ms",
        f"prefill is {ratio:.1f} times decode",
    )
    return ["".join(text for text, _ in line) for line in legend("  ".join(parts), width)]


class TimelinePanel(Panel):
    """All passes of each run on one time axis: the width of a pass is its time."""

    TITLE: ClassVar[str] = "TIMELINE"
    WHAT: ClassVar[str] = "No pass was run yet."

    def picture(self, view: LabView, width: int) -> Picture:
        if not view.passes:
            return Picture(())
        runs: dict[str, list[PassRun]] = {}
        for each in view.passes:
            runs.setdefault(each.run, []).append(each)
        longest = max(run[-1].start + run[-1].duration for run in runs.values())
        lines: list[Line] = []
        for name, passes in runs.items():
            lines += [((clip(name, width), "text"),), _lane(passes, longest, width), ()]
        lines.append(_axis(longest, width))
        lines += legend("█▓ prefill passes  │ a decode pass ends  · nothing left to do", width)
        return Picture(tuple(lines), (), f"{longest * 1000:.0f} ms across")


def _lane(passes: list[PassRun], longest: float, width: int) -> Line:
    """One cell for each part of the time: the pass that ended last in it, or the one still running."""
    cells: list[Run] = [("·", "muted")] * width
    for number, each in enumerate(passes):
        begin = min(width - 1, int(each.start / longest * width))
        end = max(begin + 1, min(width, round((each.start + each.duration) / longest * width)))
        style = STYLES[each.phase]
        shade = "▓" if number % 2 and end - begin > 1 else "█"  # neighbours told apart, if there is room
        fill = shade if each.phase == "prefill" else "─"
        for cell in range(begin, end):
            cells[cell] = (fill, style)
        if each.phase == "decode":
            cells[end - 1] = ("│", style)
    return _joined(cells)


def _joined(cells: list[Run]) -> Line:
    """Neighbours of one style as one run of text."""
    runs: list[Run] = []
    for text, style in cells:
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + text, style)
        else:
            runs.append((text, style))
    return tuple(runs)


def _axis(longest: float, width: int) -> Line:
    end = f"{longest * 1000:.0f} ms"
    middle = f"{longest * 500:.0f}"
    gap = max(1, width // 2 - 1 - len(middle) // 2)
    text = "0".ljust(gap) + middle
    return ((text + end.rjust(max(len(end) + 1, width - len(text))), "muted"),)
