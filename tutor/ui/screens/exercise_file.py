"""The learner's file: saved from the editor, taken back from other editors, never overwritten unseen."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import SuspendNotSupported
from textual.events import AppFocus

from tutor.curriculum.schema import Lesson
from tutor.grading.errors import GradingError
from tutor.ui.edited_file import Outcome
from tutor.ui.screens.exercise_draft import DraftActions
from tutor.ui.services import Services

if TYPE_CHECKING:
    from tutor.grading.verdict import Verdict
    from tutor.grading.watching import Watcher


class FileActions(DraftActions):
    """Keeps the editor and the file together, and hands the file to $EDITOR."""

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__(services, lesson)
        self._asking = False
        self._save_problem = ""  # why the last save failed
        self._watcher: Watcher[Verdict | None] | None = None

    @on(AppFocus)
    def _app_focus(self) -> None:
        self._look_outside()

    @work(exclusive=True, group="file")
    async def _look_outside(self) -> None:
        """The learner comes back to the tutor: if both texts were changed, ask now which one it shall be."""
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
                self._wrote()
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
        self._save_problem = ""
        try:
            found = self._file.save(self.editor.text)
        except GradingError as error:
            self._save_problem = str(error)
            self.say(self._save_problem, bad=True)
            return False
        if found is Outcome.SAVED:
            self._wrote()
        return await self._resolve(found)

    def _wrote(self) -> None:
        """The file was written here: that is no save of another editor."""
        if self._watcher is not None and self._file is not None:
            self._watcher.note(self._file.exercise.id, self._file.text.encode())
        self.say_on_opening("")
        self._keep_draft()

    def keep_work(self) -> str:
        """The app ends: save the file, or at least keep a draft of it. Returns why neither was possible."""
        if self._file is None or self.editor.text == self._file.text:
            return ""
        try:
            if self._file.save(self.editor.text) is Outcome.SAVED:
                self._wrote()
                return ""
            problem = f"{self._file.path.name} was changed by another program, and here, too."
        except GradingError as error:
            problem = str(error)
        return "" if self._keep_draft() else problem

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
