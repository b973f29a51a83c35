"""Text of the editor that is not in the learner's file yet, kept beside the journal.

Ctrl-C, a lost connection and `kill -9` end the app without a save; the draft is what comes back then. It
remembers on which text of the file it was based, so that it never replaces what another editor saved later.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from tutor import resources


class Kept(msgspec.Struct, frozen=True):
    """`base`: digest of the file's text when it and the editor last agreed."""

    base: str
    text: str


class Draft:
    """One draft for one file."""

    def __init__(self, file: Path) -> None:
        self._path = (
            resources.data_dir() / "drafts" / f"{file.stem}-{_digest(str(file.absolute()))[:12]}.json"
        )

    def keep(self, text: str, base: str) -> None:
        """Put the text on the disk, whole or not at all. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(f".{os.getpid()}.partial")
        try:
            partial.write_bytes(msgspec.json.encode(Kept(_digest(base), text)))
            partial.replace(self._path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    def drop(self) -> None:
        """The file holds the text now. Raises OSError."""
        self._path.unlink(missing_ok=True)

    def read(self) -> Kept | None:
        """None when there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError):
            return None

    def put_beside(self, file: Path, text: str) -> Path:
        """Save the text as a file of its own next to `file`. Raises OSError."""
        beside = file.with_name(f"{file.name}.unsaved")
        beside.write_text(text, encoding="utf-8", newline="\n")
        return beside


def is_based_on(kept: Kept, text: str) -> bool:
    """The file still has the text on which the draft was begun."""
    return kept.base == _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
