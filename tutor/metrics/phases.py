"""What the passes of each phase of a request add up to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tutor.trace.events import PassRun


class PhaseTotals(msgspec.Struct, frozen=True):
    """All passes of one phase of one run. Duration in seconds, the rest counts."""

    run: str
    phase: str
    num_tokens: int
    num_passes: int
    num_outputs: int
    duration: float

    @property
    def tokens_per_second(self) -> float:
        """Rows computed for each second; 0 before anything ran."""
        return self.num_tokens / self.duration if self.duration > 0 else 0.0


def phase_totals(passes: Sequence[PassRun]) -> tuple[PhaseTotals, ...]:
    """One entry for each (run, phase), in the order in which they began."""
    groups: dict[tuple[str, str], list[PassRun]] = {}
    for each in passes:
        groups.setdefault((each.run, each.phase), []).append(each)
    return tuple(
        PhaseTotals(
            run,
            phase,
            sum(each.num_tokens for each in group),
            len(group),
            sum(each.num_outputs for each in group),
            sum(each.duration for each in group),
        )
        for (run, phase), group in groups.items()
    )
