"""From a failed check to the replay of what the learner's code did, at the step that went wrong."""

from __future__ import annotations

from pathlib import Path

from tutor.grading.verdict import CheckResult, Verdict
from tutor.trace.codec import TraceError
from tutor.ui.screens.exercise_check import CheckActions


class ReplayActions(CheckActions):
    """Remembers the first failed check of the newest verdict that left a recording."""

    _recorded: CheckResult | None = None

    def _finish(self, verdict: Verdict) -> None:
        self._recorded = next((result for result in verdict.checks if result.trace), None)
        super()._finish(verdict)

    def action_replay(self) -> None:
        from tutor.labs.registry import UnknownLab, get_kind
        from tutor.labs.scenario import KnobError
        from tutor.trace.codec import read_trace
        from tutor.ui.screens.lab import LabScreen

        failed = self._recorded
        if failed is None:
            self.say("No failed check left a recording to replay.")
            return
        try:
            store = read_trace(Path(failed.trace))
            kind = get_kind(store.header.lab)
            knobs = kind.settings(store.header.knobs)
        except (TraceError, UnknownLab, KnobError) as error:
            self.say(str(error), bad=True)
            return
        title = f"{kind.title}: {failed.name}"
        self.app.push_screen(LabScreen(self.services, kind, knobs, title=title, trace=store, at=failed.step))
