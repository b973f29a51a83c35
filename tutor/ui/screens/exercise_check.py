"""Checking an exercise: the judge's run, its checks as they finish, and what a pass opens."""

from __future__ import annotations

from contextlib import aclosing

from textual import work

from tutor.curriculum.schema import Lesson
from tutor.grading.client import CheckCancelled
from tutor.grading.errors import GradingError
from tutor.grading.messages import CheckDone, CheckStarted, Finished
from tutor.grading.verdict import CheckResult, Verdict
from tutor.journal.events import ExerciseChecked
from tutor.ui.screens.exercise_file import FileActions
from tutor.ui.services import Services
from tutor.ui.widgets.verdict_list import CheckRow, VerdictList


class CheckActions(FileActions):
    """Runs the judge on the saved file, one run at a time."""

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__(services, lesson)
        self._stopping = False

    def action_check(self) -> None:
        if self._file is not None and not self._checking and not self._asking:
            self._check()

    @work(exclusive=True, group="check")
    async def _check(self) -> None:
        assert self._file is not None and self.exercise is not None
        if not await self._save():
            return
        listing = self.query_one(VerdictList)
        rows: list[CheckRow] = []
        self._checking, self._stopping = True, False
        if not self.has_class("-wide"):
            self.action_pane("verdict")
        self._show_keys()
        listing.show((), "Checking: waiting for the model…")
        try:
            async with aclosing(self.services.judge.check(self.exercise.id, self._file.path)) as events:
                async for event in events:
                    if self._stopping:
                        raise CheckCancelled
                    match event:
                        case CheckStarted():
                            rows.append(CheckRow(event.name, "running"))
                            listing.show(rows, f"Checking: {event.index + 1} of {event.total}…")
                        case CheckDone():
                            rows[event.index :] = [_row(event.result)]
                            listing.show(rows, f"Checking: {event.index + 1} of {event.total} done…")
                        case Finished():
                            self._finish(event.verdict)
        except CheckCancelled:
            listing.show([row for row in rows if row.status != "running"], "Stopped. Ctrl+S checks again.")
        except GradingError as error:
            listing.show(rows, f"Could not check: {error}", good=False)
        finally:
            self._checking = False
            self._show_keys()

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
    )
