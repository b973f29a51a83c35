"""An exercise: its keys, how it opens, and the way out."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from tutor.ui.screens.base import Help
from tutor.ui.screens.exercise_help import HelpActions
from tutor.ui.screens.exercise_replay import ReplayActions
from tutor.ui.widgets.verdict_list import VerdictList


class ExerciseScreen(ReplayActions, HelpActions):
    """Statement and hints, an editor, and a verdict whose checks appear as they finish."""

    CSS_PATH = "exercise.tcss"
    HELP_TITLE = "an exercise"
    ALL_KEYS: ClassVar[Help] = (
        ("Ctrl+S", "save the file and check it"),
        ("F2 F3 F5", "task, code, verdict"),
        ("Enter", "into the editor"),
        ("e  F4", "edit the file in $EDITOR (F4 inside the editor)"),
        ("h", "next hint (outside the editor)"),
        ("p", "replay a failed check at the step that went wrong, where it left a recording"),
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
        Binding("p", "replay", show=False),
        Binding("R", "start_over", show=False),
        Binding("escape", "back", show=False, priority=True),
    ]

    def on_mount(self) -> None:
        if self._file is None:
            return
        from tutor.ui.code_theme import CODE_THEME

        self.editor.register_theme(CODE_THEME)
        self.editor.theme = CODE_THEME.name
        self._show_hints()
        self.query_one(VerdictList).show(
            (), "Ctrl+S saves the file and checks it. So does saving in any other editor."
        )
        self.action_pane("statement")
        self._follow_file(self._file)
        if self._file.is_new:
            self.say_on_opening(f"Your file is {self._file.path}. Edit it here, or with any editor.")
        self._restore_draft(self._file)

    def action_back(self) -> None:
        """Step by step outwards: a running check, the editor, the screen."""
        if self._checking:
            self._stop_check()
        elif isinstance(self.focused, TextArea):
            self.action_pane("statement")
        else:
            self._leave()

    @work
    async def _leave(self) -> None:
        """Unsaved text is saved before the screen goes; a conflict or a full disk is asked about first."""
        if (
            self._file is None
            or self.editor.text == self._file.text
            or await self._save()
            or (self._save_problem and await self._leave_unsaved())
        ):
            if len(self.app.screen_stack) > 1:
                self.dismiss(None)
            else:
                self.app.exit(0)

    async def _leave_unsaved(self) -> bool:
        from tutor.ui.screens.choice import ChoiceScreen

        kept = "It is kept and comes back with this exercise." if self._keep_draft() else "It would be lost."
        question = f"{self._save_problem}\n\nYour text is not saved. {kept} Leave?"
        return await self.app.push_screen_wait(ChoiceScreen(question, (("y", "yes, leave"),))) == "y"
