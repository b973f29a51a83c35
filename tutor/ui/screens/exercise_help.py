"""Help on the way through an exercise: hints, the solution, starting over."""

from __future__ import annotations

from textual import work
from textual.content import Content
from textual.widgets import Static

from tutor.grading.errors import GradingError
from tutor.grading.exercise import Exercise
from tutor.journal.events import ExerciseReset, HintShown, SolutionShown
from tutor.ui.edited_file import EditedFile
from tutor.ui.inline import inline
from tutor.ui.screens.exercise_file import FileActions


class HelpActions(FileActions):
    """Hints open one by one; the solution and a fresh start are asked about first."""

    def _show_hints(self) -> None:
        assert self.exercise is not None
        known = self.services.progress.exercise(self.exercise.id)
        hints = self.exercise.hints
        lines: list[Content] = []
        for number, hint in enumerate(hints[: known.hints], start=1):
            lines.append(
                Content.assemble((f"Hint {number}  ", "bold $accent"), inline(" ".join(hint.split())))
            )
        left = len(hints) - known.hints
        more = (
            f"h opens the next of {left} hint{'s' if left > 1 else ''}."
            if left > 0
            else "All hints are open."
        )
        lines.append(Content.styled(more, "$secondary"))
        self.query_one("#hints", Static).update(Content("\n\n").join(lines))

    def action_hint(self) -> None:
        if self.exercise is None:
            return
        shown = self.services.progress.exercise(self.exercise.id).hints
        if shown < len(self.exercise.hints):
            self.record(HintShown(exercise=self.exercise.id, index=shown))
            self._show_hints()
        self.action_pane("statement")
        self.query_one("#statement").scroll_end(animate=False)

    def action_solution(self) -> None:
        if self.exercise is not None:
            self._solution(self.exercise)

    @work(exclusive=True, group="dialog")
    async def _solution(self, exercise: Exercise) -> None:
        from tutor.ui.screens.choice import ChoiceScreen
        from tutor.ui.screens.solution import SolutionScreen

        if not self.services.progress.exercise(exercise.id).passed:
            question = "You have not passed yet. Seeing the solution takes the best part away. Show it?"
            if (
                await self.app.push_screen_wait(ChoiceScreen(question, (("y", "yes, show the solution"),)))
                != "y"
            ):
                return
        try:
            text = exercise.solution.read_text(encoding="utf-8")
        except OSError as error:
            self.say(f"The solution cannot be read: {error.strerror}.", bad=True)
            return
        self.record(SolutionShown(exercise=exercise.id))
        self.app.push_screen(SolutionScreen(exercise.title, text))

    def action_start_over(self) -> None:
        if self._file is not None:
            self._start_over(self._file)

    @work(exclusive=True, group="dialog")
    async def _start_over(self, file: EditedFile) -> None:
        from tutor.ui.screens.choice import ChoiceScreen

        question = "Start over? Your file is kept as a backup beside the new one."
        if await self.app.push_screen_wait(ChoiceScreen(question, (("y", "yes, start over"),))) != "y":
            return
        try:
            if self.editor.text != file.text and not await self._save():
                return
            backup = file.start_over()
            self._wrote()
        except GradingError as error:
            self.say(str(error), bad=True)
            return
        self._take(file.text)
        self.record(ExerciseReset(exercise=file.exercise.id))
        self.say(f"Started over. Your text is in {backup}.")
