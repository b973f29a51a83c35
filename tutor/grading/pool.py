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

    def refill(self) -> None:
        """Start the spare guest, if there is none; does not wait for it."""
        if self._spare is None or not self._spare.alive:
            if self._spare is not None:
                self._spare.close()
            self._spare = self._start()

    def take(self) -> GuestProcess:
        """A guest that is ready; nobody has used it before."""
        self.refill()
        guest, self._spare = self._spare, None
        assert guest is not None
        self._lent.append(guest)
        guest.wait_ready()
        return guest

    def close(self) -> None:
        """End all guests."""
        for guest in (*self._lent, self._spare):
            if guest is not None:
                guest.close()
        self._lent.clear()
        self._spare = None

    def give_back(self, guest: GuestProcess) -> None:
        """End a guest that was taken; guests are never used twice."""
        guest.close()
        self._lent.remove(guest)

    def _start(self) -> GuestProcess:
        return GuestProcess(self._namespaces, self._scratch, self._family if self._sweep else None)

    def _family(self) -> set[int]:
        return {guest.pid for guest in (*self._lent, self._spare) if guest is not None}
