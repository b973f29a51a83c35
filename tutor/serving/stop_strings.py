"""Ends a stream of text before the first stop string, without ever showing a part of one."""

from __future__ import annotations

from tutor.serving.errors import ConfigError, ensure


class StopChecker:
    """Fed the pieces of a text in order, it passes on what cannot belong to a stop string any more.

    The first stop string is the one that is complete first; among those that are complete at the same
    character, the longest. So the outcome depends on the text alone, not on how it is cut into pieces, and
    a generation can end the moment a stop string is there. Pieces are whole characters: a character whose
    bytes come from several tokens is fed when the last of them is there.

    `matched` is the stop string that ended the text; `withheld` the text that is kept back: the longest end
    of what was fed that begins a stop string.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        if not all(stop):
            raise ConfigError("A stop string is empty. Each has to have a character at least.")
        self._stop = tuple(dict.fromkeys(stop))
        self._longest = max(map(len, self._stop), default=0)
        self.withheld = ""
        self.matched: str | None = None

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def feed(self, piece: str) -> tuple[str, bool]:
        """(text to emit now, has the text ended?). What is fed after the end is dropped."""
        if self.matched is not None:
            return "", True
        if not self._stop:
            return piece, False
        # A stop string that was begun before this piece has its beginning in `withheld`.
        text = self.withheld + piece
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            _, start, self.matched = min(found)
            self.withheld = ""
            return text[:start], True
        keep = self._begun(text)
        self.withheld = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def _begun(self, text: str) -> int:
        """How many characters at the end of `text` could be the beginning of a stop string."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-size:]
            if any(stop.startswith(end) for stop in self._stop):
                return size
        return 0

    def flush(self) -> str:
        """The generation ended otherwise: return what was withheld. Text fed later starts afresh."""
        text, self.withheld = self.withheld, ""
        return text

    def check_integrity(self) -> None:
        """Raises IntegrityError: what is withheld begins a stop string and holds none."""
        held = self.withheld
        ensure(not (self.stopped and held), "Text is withheld after a stop string.")
        ensure(self.matched is None or self.matched in self._stop, "The text was ended by an unknown string.")
        begins = any(len(held) < len(stop) and stop.startswith(held) for stop in self._stop)
        ensure(not held or begins, f"{held!r} is withheld and begins no stop string.")
        ensure(not any(stop in held for stop in self._stop), f"{held!r} is withheld and holds a stop string.")
