"""An exercise: statement and hints, an editor, and a verdict whose checks appear as they finish."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import aclosing
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import AppFocus
from textual.widgets import Markdown, Static, TextArea

from tutor.curriculum.schema import Lesson
from tutor.grading.client import CheckCancelled
from tutor.grading.errors import GradingError
from tutor.grading.exercise import Exercise, find_exercise
from tutor.grading.messages import CheckDone, CheckStarted, Finished
from tutor.grading.verdict import CheckResult, Verdict
from tutor.journal.events import ExerciseChecked, ExerciseReset, HintShown, SolutionShown
from tutor.ui.edited_file import EditedFile, Outcome
from tutor.ui.inline import inline
from tutor.ui.screens.base import Help, KeyBar, TitleBar, TutorScreen
from tutor.ui.services import Services
from tutor.ui.widgets.verdict_list import CheckRow, VerdictList

PANES = ("statement", "editor", "verdict")
KEYS = (
    ("Ctrl+S", "save and check", "screen.check"),
    ("Enter", "edit", "screen.pane('editor')"),
    ("e", "$EDITOR", "screen.external"),
    ("h", "hint", "screen.hint"),
    ("?", "help", "screen.help"),
    ("Esc", "back", "screen.back"),
)
EDITOR_KEYS = (
    ("Ctrl+S", "save and check", "screen.check"),
    ("F2", "task", "screen.pane('statement')"),
    ("F4", "$EDITOR", "screen.external"),
    ("Esc", "leave the editor", "screen.back"),
)
RUNNING_KEYS = (("Esc", "stop the check", "screen.back"),)


class ExerciseScreen(TutorScreen):
    CSS_PATH = "exercise.tcss"
    HELP_TITLE = "an exercise"
    ALL_KEYS: ClassVar[Help] = (
        ("Ctrl+S", "save the file and check it"),
        ("F2 F3 F5", "task, code, verdict"),
        ("Enter", "into the editor"),
        ("e  F4", "edit the file in $EDITOR (F4 inside the editor)"),
        ("h", "next hint (outside the editor)"),
        ("s", "the solution: after a pass, or on request"),
        ("R", "start over; your file is backed up"),
        ("Esc", "stop a running check; leave the editor; back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "check", show=False, priority=True),
        Binding("f2", "pane('statement')", show=False),
        Binding("f3", "pane('editor')", show=False),
        Binding("f5", "pane('verdict')", show=False),
        Binding("enter", "pane('editor')", show=False),
        Binding("f4", "external", show=False),
        Binding("e", "external", show=False),
        Binding("h", "hint", show=False),
        Binding("s", "solution", show=False),
        Binding("R", "start_over", show=False),
        Binding("escape", "back", show=False, priority=True),
    ]

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__(services)
        self.lesson = lesson
        self.exercise: Exercise | None = None
        self._file: EditedFile | None = None
        self._problem = ""
        self._checking = False
        self._stopping = False
        self._asking = False
        self.verdict: Verdict | None = None
        try:
            self.exercise = find_exercise(lesson.id)
            self._file = EditedFile(services.workspace, self.exercise)
        except GradingError as error:
            self._problem = str(error)

    def body(self) -> ComposeResult:
        where = str(self._file.path) if self._file else ""
        yield TitleBar(self.exercise.title if self.exercise else self.lesson.title, where)
        if self.exercise is None or self._file is None:
            yield Static(self._problem, id="problem", markup=False)
            yield KeyBar((("Esc", "back", "screen.back"),))
            return
        yield Static(id="pane-bar", markup=False)
        with Horizontal(id="panes"):
            with Vertical(id="side"):
                with VerticalScroll(id="statement", classes="pane"):
                    yield Markdown(self.exercise.statement, open_links=False)
                    yield Static(id="hints", markup=False)
                with VerticalScroll(id="verdict", classes="pane"):
                    yield VerdictList()
            yield TextArea.code_editor(
                self._file.text, language="python", id="editor", classes="pane", tab_behavior="indent"
            )
        yield KeyBar(KEYS)

    def on_mount(self) -> None:
        if self._file is None:
            return
        from tutor.ui.code_theme import CODE_THEME

        self.editor.register_theme(CODE_THEME)
        self.editor.theme = CODE_THEME.name
        self._show_hints()
        self.query_one(VerdictList).show((), "Ctrl+S saves the file and checks it.")
        self.action_pane("statement")
        if self._file.is_new:
            self.say(f"Your file is {self._file.path}. Edit it here, or with any editor.")

    # --- panes ----------------------------------------------------------------------------------

    def action_pane(self, name: str) -> None:
        if self._file is None:
            return
        for other in PANES:
            self.set_class(other == name, f"-pane-{other}")
        self.query_one(f"#{name}").focus()
        titles = {"statement": "F2 task", "editor": "F3 code", "verdict": "F5 verdict"}
        parts = [
            Content(f" {title} ")
            .stylize("bold reverse" if pane == name else "$secondary")
            .stylize(f"@click=screen.pane('{pane}')")
            for pane, title in titles.items()
        ]
        self.query_one("#pane-bar", Static).update(Content.assemble(*parts))

    def on_descendant_focus(self) -> None:
        self._show_keys()

    def _show_keys(self) -> None:
        in_editor = isinstance(self.focused, TextArea)
        keys = RUNNING_KEYS if self._checking else EDITOR_KEYS if in_editor else KEYS
        for bar in self.query(KeyBar):  # none while the screen goes away
            bar.show(keys)

    def action_back(self) -> None:
        """Step by step outwards: a running check, the editor, the screen."""
        if self._checking:
            self._stopping = True
            self.services.judge.cancel()
        elif isinstance(self.focused, TextArea):
            self.action_pane("statement")
        else:
            self._leave()

    @work
    async def _leave(self) -> None:
        """Unsaved text is saved before the screen goes; a conflict is asked about first."""
        if self._file is None or self.editor.text == self._file.text or await self._save():
            if len(self.app.screen_stack) > 1:
                self.dismiss(None)
            else:
                self.app.exit(0)

    # --- the file -------------------------------------------------------------------------------

    @property
    def editor(self) -> TextArea:
        return self.query_one("#editor", TextArea)

    @on(AppFocus)
    def _app_focus(self) -> None:
        self._look_outside()

    @work(exclusive=True, group="file")
    async def _look_outside(self) -> None:
        """The learner comes back to the tutor: another editor may have saved the file."""
        if self._file is None or self._checking or self._asking:
            return
        try:
            found = self._file.look(self.editor.text)
        except GradingError as error:
            self.say(str(error), bad=True)
            return
        await self._resolve(found)

    async def _resolve(self, found: Outcome) -> bool:
        """Bring editor and file together; False when the learner has not decided."""
        assert self._file is not None
        if found is Outcome.TAKEN:
            self._take(self._file.text)
            self.say("The file was changed outside; the editor shows the new text.")
        elif found is Outcome.CONFLICT:
            return await self._ask_which()
        return True

    async def _ask_which(self) -> bool:
        from tutor.ui.screens.choice import ChoiceScreen

        assert self._file is not None
        question = (
            f"{self._file.path.name} was changed by another program, and here, too. Which text shall it be?"
        )
        answers = (("m", "mine, from this editor (the other becomes a backup)"), ("f", "the file's"))
        self._asking = True
        answer = await self.app.push_screen_wait(ChoiceScreen(question, answers))
        self._asking = False
        try:
            if answer == "m":
                self._file.keep_editor(self.editor.text)
            elif answer == "f":
                self._file.take_file()
                self._take(self._file.text)
        except GradingError as error:
            self.say(str(error), bad=True)
            return False
        return bool(answer)

    def _take(self, text: str) -> None:
        """New text in the editor, the cursor near where it was."""
        place = self.editor.cursor_location
        self.editor.load_text(text)
        row = min(place[0], self.editor.document.line_count - 1)
        self.editor.move_cursor((row, min(place[1], len(self.editor.document.get_line(row)))))

    async def _save(self) -> bool:
        """True when the file holds what the editor shows."""
        assert self._file is not None
        try:
            found = self._file.save(self.editor.text)
        except GradingError as error:
            self.say(str(error), bad=True)
            return False
        return await self._resolve(found)

    def action_external(self) -> None:
        """Hand the file to $EDITOR and take it back afterwards."""
        self._edit_outside()

    @work(exclusive=True, group="file")
    async def _edit_outside(self) -> None:
        if self._file is None or self._checking or not await self._save():
            return
        command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
        if not command or shutil.which(command[0]) is None:
            named = f"{command[0]} was not found. " if command else ""
            self.say(
                f"{named}Set EDITOR to your editor, for example EDITOR=nano, and start the tutor again.",
                bad=True,
            )
            return
        try:
            with self.app.suspend():
                subprocess.run([*command, str(self._file.path)], check=False)
        except SuspendNotSupported:
            self.say(f"This terminal cannot be handed over. Edit {self._file.path} in another one.", bad=True)
            return
        self.app.refresh()
        try:
            found = self._file.look(self.editor.text)
        except GradingError as error:
            self.say(str(error), bad=True)
            return
        if found is Outcome.TAKEN:
            self._take(self._file.text)

    # --- checking -------------------------------------------------------------------------------

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
        self.verdict = verdict
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

    # --- help on the way ------------------------------------------------------------------------

    def _show_hints(self) -> None:
        assert self.exercise is not None
        known = self.services.progress.exercise(self.exercise.id)
        hints = self.exercise.hints
        lines: list[Content] = []
        for number, hint in enumerate(hints[: known.hints], start=1):
            lines.append(Content.assemble((f"Hint {number}  ", "bold $accent"), inline(hint)))
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
        except GradingError as error:
            self.say(str(error), bad=True)
            return
        self._take(file.text)
        self.record(ExerciseReset(exercise=file.exercise.id))
        self.say(f"Started over. Your text is in {backup}.")


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
