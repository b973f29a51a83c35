"""From a failed check to the replay of what the learner's code did, at the step that went wrong."""

from __future__ import annotations

from pathlib import Path

from tutor.trace.codec import TraceError
from tutor.ui.screens.exercise_check import CheckActions


class ReplayActions(CheckActions):
    """Opens the recording of the first failed check on the screen that left one, also while others run."""

    def action_replay(self) -> None:
        from tutor.labs.registry import UnknownLab, get_kind
        from tutor.labs.scenario import KnobError
        from tutor.trace.codec import read_trace
        from tutor.ui.screens.lab import LabScreen

        failed = next((result for result in self._results if result.trace), None)
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
