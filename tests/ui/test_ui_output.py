"""A terminal whose other end reads nothing is noticed, on a real pty."""

from __future__ import annotations

import os
import pty
import select
import sys
from contextlib import suppress

import pytest

from tutor.ui.output import terminal_ready


def test_a_full_terminal_is_not_ready_until_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    try:
        os.set_blocking(slave, False)
        os.set_blocking(master, False)
        with os.fdopen(slave, "w") as terminal:
            monkeypatch.setattr(sys, "__stderr__", terminal)
            assert terminal_ready()
            # the kernel carries what is written to the other end a moment later, which makes room again
            while select.select([], [slave], [], 0.5)[1]:
                with suppress(BlockingIOError):
                    os.write(slave, b"x" * 1024)
            assert not terminal_ready()
            while not select.select([], [slave], [], 0)[1]:
                assert select.select([master], [], [], 5)[0]
                os.read(master, 65536)
            assert terminal_ready()
            monkeypatch.undo()
    finally:
        os.close(master)


def test_without_stderr_nothing_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stderr__", None)
    assert terminal_ready()
