"""Guests in reserve: one is always started ahead, so that a check does not wait for Python and NumPy."""

from __future__ import annotations

from pathlib import Path

from tutor.grading.process import GuestProcess


class GuestPool:
    """Hands out fresh guests. `sweep` only where this process has no children but guests (the judge)."""

    def __init__(self, namespaces: bool = True, scratch: Path | None = None, sweep: bool = False) -> None:
        self._namespaces = namespaces
        self._scratch = scratch
        self._sweep = sweep
        self._spare: GuestProcess | None = None
        self._lent: list[GuestProcess] = []
        self._ended: list[GuestProcess] = []  # their folders are still there

    def refill(self) -> None:
        """Remove what ended guests left and start the spare one, if there is none; does not wait for it."""
        self._tidy()
        self._ensure_spare()

    def take(self) -> GuestProcess:
        """A guest that is ready; nobody has used it before."""
        self._ensure_spare()
        guest, self._spare = self._spare, None
        assert guest is not None
        self._lent.append(guest)
        guest.wait_ready()
        return guest

    def close(self) -> None:
        """End all guests and remove what they left."""
        for guest in (*self._lent, self._spare):
            if guest is not None:
                self._end(guest)
        self._lent.clear()
        self._spare = None
        self._tidy()

    def give_back(self, guest: GuestProcess) -> None:
        """End a guest that was taken; guests are never used twice. `refill` removes its folder."""
        self._end(guest)
        self._lent.remove(guest)

    def _ensure_spare(self) -> None:
        if self._spare is None or not self._spare.alive:
            if self._spare is not None:
                self._end(self._spare)
            self._spare = self._start()

    def _end(self, guest: GuestProcess) -> None:
        guest.close()
        self._ended.append(guest)

    def _tidy(self) -> None:
        """Not before the verdict is out: a learner does not wait for the disk."""
        while self._ended:
            self._ended.pop().remove_folder()

    def _start(self) -> GuestProcess:
        return GuestProcess(self._namespaces, self._scratch, self._family if self._sweep else None)

    def _family(self) -> set[int]:
        return {guest.pid for guest in (*self._lent, self._spare) if guest is not None}
