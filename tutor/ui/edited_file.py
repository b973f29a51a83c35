"""The learner's file as the editor last saw it, so that nobody's work is overwritten unseen.

Other editors may change the file at any time. `reload` and `save` compare the disk with what was last
read or written here and refuse to choose when both sides have changed.
"""

from __future__ import annotations

from enum import Enum, auto

from tutor.grading.errors import WorkspaceError
from tutor.grading.exercise import Exercise
from tutor.grading.workspace import Workspace


class Outcome(Enum):
    SAME = auto()  # nothing changed outside
    TAKEN = auto()  # the file was changed outside, the editor was not: take the file
    CONFLICT = auto()  # both were changed
    SAVED = auto()


class EditedFile:
    """Raises WorkspaceError (a sentence) whenever the disk does."""

    def __init__(self, workspace: Workspace, exercise: Exercise) -> None:
        self._workspace = workspace
        self.exercise = exercise
        self.path, self.is_new = workspace.start(exercise)
        self.text = workspace.read(exercise)  # what disk and editor last agreed on

    def _disk(self) -> str:
        """The file's text; a file that was deleted outside counts as unchanged."""
        try:
            return self._workspace.read(self.exercise)
        except WorkspaceError:
            if self.path.exists():
                raise
            return self.text

    def look(self, editor: str) -> Outcome:
        """Compare with the disk; after TAKEN, `text` is the file's new text."""
        disk = self._disk()
        if disk == self.text:
            return Outcome.SAME
        if editor not in (self.text, disk):
            return Outcome.CONFLICT
        self.text = disk
        return Outcome.TAKEN

    def save(self, editor: str) -> Outcome:
        """Write the editor's text unless the file was changed outside in the meantime."""
        found = self.look(editor)
        if found in (Outcome.CONFLICT, Outcome.TAKEN):
            return found
        self._write(editor)
        return Outcome.SAVED

    def keep_editor(self, editor: str) -> None:
        """After a conflict: the editor wins; the other version stays beside it as a backup."""
        self._workspace.reset(self.exercise)
        self._write(editor)

    def take_file(self) -> None:
        """After a conflict: the file wins."""
        self.text = self._disk()

    def start_over(self) -> str:
        """Put the starter there; returns the name of the backup."""
        _, backup = self._workspace.reset(self.exercise)
        self.text = self._workspace.read(self.exercise)
        return backup.name if backup else ""

    def _write(self, text: str) -> None:
        self._workspace.write(self.exercise, text)
        self.text = text
