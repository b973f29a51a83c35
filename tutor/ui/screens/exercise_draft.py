"""Unsaved text of the editor survives the end of the app, however it ends."""

from __future__ import annotations

from textual import on
from textual.timer import Timer
from textual.widgets import TextArea

from tutor.curriculum.schema import Lesson
from tutor.ui.draft import Draft, is_based_on
from tutor.ui.edited_file import EditedFile
from tutor.ui.screens.exercise_frame import ExerciseFrame
from tutor.ui.services import Services

KEEP_EVERY = 1.0  # seconds of typing that `kill -9` can cost


class DraftActions(ExerciseFrame):
    """Keeps a draft while editor and file differ, and brings it back when the screen opens again."""

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__(services, lesson)
        self._draft = Draft(self._file.path) if self._file is not None else None
        self._keeping: Timer | None = None
        self._draft_problem = ""

    def _restore_draft(self, file: EditedFile) -> None:
        """Text that was not saved last time goes back into the editor, unless the file moved on since."""
        kept = self._draft.read() if self._draft is not None else None
        if self._draft is None or kept is None or kept.text == file.text:
            return
        if is_based_on(kept, file.text):
            self.editor.load_text(kept.text)
            self.say_on_opening(
                "What you typed last time was not saved. It is back in the editor; Ctrl+S saves it."
            )
            return
        try:
            beside = self._draft.put_beside(file.path, kept.text)
            self._draft.drop()
        except OSError as error:
            self.say_on_opening(f"Unsaved text of last time cannot be written: {error.strerror}.", bad=True)
            return
        self.say_on_opening(
            f"{file.path.name} was changed since. What you had typed here is in {beside.name}."
        )

    @on(TextArea.Changed)
    def _typed(self) -> None:
        if self._keeping is None:
            self._keeping = self.set_timer(KEEP_EVERY, self._keep_draft)

    def _keep_draft(self) -> bool:
        """Write the draft, or drop it where nothing is unsaved. True when no text can be lost."""
        if self._keeping is not None:
            self._keeping.stop()
            self._keeping = None
        if self._file is None or self._draft is None:
            return True
        try:
            if self.editor.text == self._file.text:
                self._draft.drop()
            else:
                self._draft.keep(self.editor.text, self._file.text)
        except OSError as error:
            sentence = f"Unsaved text cannot be kept safe: {error.strerror}."
            if sentence != self._draft_problem and self.editor.text != self._file.text:
                self._draft_problem = sentence
                self.say(sentence, bad=True)
            return self.editor.text == self._file.text
        return True
