"""Checking an exercise: on Ctrl+S and whenever any editor saves the file; and what a pass opens.

The watcher of `tutor watch` decides when to run: one run at a time, and the text saved last is the one
checked last. A result whose text was replaced meanwhile is not shown.
"""

from __future__ import annotations

from contextlib import aclosing

from textual import work

from tutor.curriculum.schema import Lesson
from tutor.grading.client import CheckCancelled
from tutor.grading.errors import GradingError
from tutor.grading.messages import CheckDone, CheckStarted, Finished
from tutor.grading.verdict import CheckResult, Verdict
from tutor.journal.events import ExerciseChecked
from tutor.ui.edited_file import EditedFile, Outcome
from tutor.ui.screens.exercise_file import FileActions
from tutor.ui.services import Services
from tutor.ui.widgets.verdict_list import CheckRow, VerdictList


class CheckActions(FileActions):
    """Runs the judge on the saved file, and shows its checks as they finish."""

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__(services, lesson)
        self._stopping = False
        self._results: list[CheckResult] = []  # of the rows on the screen

    def action_check(self) -> None:
        if self._file is not None and not self._asking:
            self._save_and_check(self._file)

    @work(exclusive=True, group="file")
    async def _save_and_check(self, file: EditedFile) -> None:
        if await self._save() and self._watcher is not None:
            self._watcher.request(file.exercise.id)

    @work(exclusive=True, group="watch")
    async def _follow_file(self, file: EditedFile) -> None:
        """Check after every save, as long as this screen lives."""
        from tutor.grading.changes import changes
        from tutor.grading.watching import Watcher, look

        async def check(ident: str) -> Verdict | None:
            return await self._run(file) if self._is_settled(file) else None

        def report(ident: str, verdict: Verdict | None) -> None:
            if verdict is not None:
                self._finish(verdict)

        self._watcher = Watcher(
            {file.exercise.id: file.path}, check, report, stop=lambda: self.services.judge.cancel()
        )
        found = look(file.path)
        if found is not None and found.data != file.text.encode():  # saved while this screen opened
            self._watcher.request(file.exercise.id)
        await self._watcher.run(changes(file.path.parent))

    def _is_settled(self, file: EditedFile) -> bool:
        """Take over what another editor saved; False when it is open which text is the learner's."""
        if self._asking:
            return False
        try:
            found = file.look(self.editor.text)
        except GradingError as error:
            self.say(str(error), bad=True)
            return False
        if found is Outcome.CONFLICT:
            self.say(f"{file.path.name} was saved by another program. Ctrl+S asks which text it shall be.")
            return False
        if found is Outcome.TAKEN:
            self._take(file.text)
        return True

    async def _run(self, file: EditedFile) -> Verdict | None:
        """The judge's verdict; None when there is none, with the reason on the screen."""
        listing = self.query_one(VerdictList)
        rows: list[CheckRow] = []
        self._results = []
        self._checking, self._stopping = True, False
        if not self.has_class("-wide"):
            self.action_pane("verdict")
        self._show_keys()
        listing.show((), "Checking: waiting for the model…")
        try:
            async with aclosing(self.services.judge.check(file.exercise.id, file.path)) as events:
                async for event in events:
                    if self._stopping:
                        raise CheckCancelled
                    match event:
                        case CheckStarted():
                            rows.append(CheckRow(event.name, "running"))
                            listing.show(rows, f"Checking: {event.index + 1} of {event.total}…")
                        case CheckDone():
                            rows[event.index :] = [_row(event.result)]
                            self._results.append(event.result)
                            listing.show(rows, f"Checking: {event.index + 1} of {event.total} done…")
                        case Finished():
                            return event.verdict
        except CheckCancelled:
            listing.show([row for row in rows if row.status != "running"], "Stopped. Ctrl+S checks again.")
        except GradingError as error:
            listing.show(rows, f"Could not check: {error}", good=False)
        finally:
            self._checking = False
            self._show_keys()
        return None

    def _finish(self, verdict: Verdict) -> None:
        assert self.exercise is not None
        before = {id for id, state in self.services.states.items() if state.status == "locked"}
        self.record(
            ExerciseChecked(
                exercise=self.exercise.id,
                lesson=self.exercise.lesson,
                passed=verdict.passed,
                failed_checks=verdict.failed_checks,
            )
        )
        passed = sum(check.status == "pass" for check in verdict.checks)
        spent = f"{passed} of {len(verdict.checks)} checks in {verdict.seconds:.1f} s"
        if verdict.passed:
            headline = f"Passed: {spent}. {self._unlocked(before)}Esc goes on to the recap."
        else:
            headline = f"Not passed yet: {spent}. {verdict.message}".rstrip()
        self._results = list(verdict.checks)
        rows = [_row(check) for check in verdict.checks]
        self.query_one(VerdictList).show(rows, headline, good=verdict.passed, output=verdict.output)
        self.query_one("#verdict").scroll_home(animate=False)

    def _unlocked(self, before: set[str]) -> str:
        states, course = self.services.states, self.services.course
        fresh = [course[id].title for id in course.order if id in before and states[id].status == "ready"]
        return f"This opens {', '.join(fresh)}. " if fresh else ""

    def _stop_check(self) -> None:
        self._stopping = True
        self.services.judge.cancel()


def _row(result: CheckResult) -> CheckRow:
    return CheckRow(
        result.name,
        result.status,
        result.against,
        result.message,
        result.expected,
        result.actual,
        result.where,
        bool(result.trace),
    )
