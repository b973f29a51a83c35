"""The learner's own files: made from the starter, never overwritten, backed up before a reset."""

from __future__ import annotations

import os
import re
import tempfile
from datetime import datetime
from pathlib import Path

from tutor import resources
from tutor.grading.errors import WorkspaceError
from tutor.grading.exercise import PYTHON, Exercise, exercise_ids, renames

_HEADER = re.compile(r"^(?:#|//) inference-tutor: exercise (\S+), version (\d+)\s*$", re.MULTILINE)


class Workspace:
    """The folder of the learner's exercise files (default: `resources.workspace_dir()`)."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = Path(folder).expanduser() if folder else resources.workspace_dir()

    def path(self, exercise: Exercise) -> Path:
        """Where the exercise's file is, or will be."""
        return self.folder / exercise.file

    def latest(self, exercise: Exercise) -> Exercise:
        """The exercise in the language whose file was saved last; as it is when there is no file yet."""
        there = [item for item in exercise.all_languages() if os.path.lexists(self.path(item))]
        return max(there, key=lambda item: os.lstat(self.path(item)).st_mtime_ns, default=exercise)

    def start(self, exercise: Exercise) -> tuple[Path, bool]:
        """Put the starter there unless a file is there already. Returns (path, whether it was made now)."""
        path = self.path(exercise)
        if path.is_dir():
            raise WorkspaceError(f"{path} is a folder; move it away so that the exercise file can be there.")
        if path.exists():
            self._check_owner(path, exercise)
            return path, False
        text = header(exercise) + exercise.starter.read_text(encoding="utf-8")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                try:
                    file.write(text)
                    file.flush()
                except OSError:
                    path.unlink(missing_ok=True)  # a full disk must not leave an empty exercise
                    raise
        except FileExistsError:
            return path, False
        except OSError as error:
            raise WorkspaceError(_cannot("write", path, error)) from error
        return path, True

    def read(self, exercise: Exercise) -> str:
        """The text of the learner's file."""
        path = self.path(exercise)
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise WorkspaceError(f"{path} is not UTF-8 text; save it as UTF-8.") from error
        except OSError as error:
            raise WorkspaceError(_cannot("read", path, error)) from error

    def write(self, exercise: Exercise, text: str) -> Path:
        """Save the learner's file: beside it first, then renamed, so a full disk loses nothing."""
        path = self.path(exercise)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd, name = tempfile.mkstemp(dir=self.folder, prefix=f".{path.name}-")
            try:
                with os.fdopen(fd, "w", encoding="utf-8", newline="\n") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(name, path.stat().st_mode if path.exists() else 0o644)
                os.replace(name, path)
            except OSError:
                os.unlink(name)
                raise
        except OSError as error:
            raise WorkspaceError(_cannot("write", path, error)) from error
        return path

    def reset(self, exercise: Exercise) -> tuple[Path, Path | None]:
        """Move the learner's file to a backup and put the starter there. Returns (path, backup)."""
        path, backup = self.path(exercise), None
        if path.exists() and not path.is_dir():
            backup = self._free_backup(path)
            try:
                path.rename(backup)
            except OSError as error:
                raise WorkspaceError(_cannot("move", path, error)) from error
        self.start(exercise)
        return path, backup

    def version(self, exercise: Exercise) -> int | None:
        """The version that the file's header names; None without a header for this exercise."""
        return _version_in(self.read(exercise), exercise)

    def news(self, exercise: Exercise) -> tuple[str, ...]:
        """What changed in the exercise since the learner's file was begun, a sentence each.

        Empty without a readable file or header, and when the file is at the exercise's version. The file is
        kept as it is; the last sentence says how the learner marks it as brought up to date.
        """
        try:
            text = self.path(exercise).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ()  # not there, or what reads it next says why it cannot
        since = _version_in(text, exercise)
        if since is None or since >= exercise.version:
            return ()
        kept = f"Your file was begun for version {since}; the exercise is at version {exercise.version} now."
        changed = [
            f"Version {version}: {exercise.changes.get(version, 'no note was left').strip()}"
            for version in range(max(since, 1) + 1, exercise.version + 1)
        ]
        done = f"Your file is kept. When it does that, let its header say: {header(exercise).strip()}"
        return (kept, *changed, done)

    def _check_owner(self, path: Path, exercise: Exercise) -> None:
        """WorkspaceError when the file belongs to an exercise of another pack with the same file name."""
        found = _HEADER.search(path.read_text(encoding="utf-8", errors="replace"))
        if found and _current_id(found[1], exercise) != exercise.id and found[1] in exercise_ids():
            raise WorkspaceError(
                f"{path} belongs to the exercise {found[1]!r}; choose another folder with --workspace."
            )

    def _free_backup(self, path: Path) -> Path:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        backup, number = path.with_name(f"{path.name}.{stamp}.bak"), 1
        while backup.exists():  # a second reset within the same second
            number += 1
            backup = path.with_name(f"{path.name}.{stamp}-{number}.bak")
        return backup


def _version_in(text: str, exercise: Exercise) -> int | None:
    found = _HEADER.search(text)
    return int(found[2]) if found and _current_id(found[1], exercise) == exercise.id else None


def _current_id(ident: str, exercise: Exercise) -> str:
    """The id that an exercise has now, through the renames of the folder of `exercise`."""
    return renames((exercise.folder.parent,)).get(ident, ident)


def header(exercise: Exercise) -> str:
    """The line at the top of a learner's file."""
    comment = "#" if exercise.language == PYTHON else "//"
    return f"{comment} inference-tutor: exercise {exercise.id}, version {exercise.version}\n"


def _cannot(verb: str, path: Path, error: OSError) -> str:
    way_out = "choose another folder with --workspace or TUTOR_WORKSPACE"
    return f"Cannot {verb} {path} ({error.strerror}); {way_out}."
