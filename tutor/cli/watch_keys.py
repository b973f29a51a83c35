"""Single keys from a terminal while the program goes on; the terminal's settings always come back."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_LOCAL_FLAGS, _CONTROL_CHARACTERS = 3, 6  # fields of termios.tcgetattr
ESCAPE = "\x1b"
END_OF_INPUT = "\x04"  # Ctrl-D
# What arrows and function keys (CSI and SS3 sequences of ECMA-48 and xterm), and Alt with a key, send
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\x1b\[O])")
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)\Z")


def split_keys(data: bytes) -> tuple[str, bytes]:
    """The single keys in what a terminal sent, and the beginning of a sequence that goes on in the next read.

    One read may hold several keys (a slow link sends them together). A lone ESC at the end is the Escape key.
    """
    begun = _BEGUN.search(data)
    whole, rest = (data[: begun.start()], begun[0]) if begun else (data, b"")
    return _SEQUENCE.sub(b"", whole).decode("utf-8", "ignore"), rest


class Keys:
    """Reads the terminal `fd` without waiting for Enter and without echo; Ctrl-C and Ctrl-Z keep working.

    press: called in the event loop with each character; arrows and other long sequences are swallowed.
    shown: called with False before the program stops (Ctrl-Z) or is in the background, with True when it
    is back in the foreground.
    """

    def __init__(self, fd: int, press: Callable[[str], None], shown: Callable[[bool], None]) -> None:
        self._fd = fd
        self._press = press
        self._shown = shown
        self._before: list[Any] | None = None  # the settings to put back, while ours are in force
        self._rest = b""  # the beginning of a sequence whose end has not come yet
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Until the end of the block, however it is left."""
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGCONT, self._resume)
        self._resume()
        try:
            yield
        finally:
            self._leave()
            self._loop.remove_signal_handler(signal.SIGTSTP)
            self._loop.remove_signal_handler(signal.SIGCONT)

    def _enter(self) -> None:
        if self._before is not None:
            return
        before = termios.tcgetattr(self._fd)
        ours = termios.tcgetattr(self._fd)
        ours[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
        ours[_CONTROL_CHARACTERS][termios.VMIN] = 1
        ours[_CONTROL_CHARACTERS][termios.VTIME] = 0
        termios.tcsetattr(self._fd, termios.TCSANOW, ours)
        self._before = before
        self._loop.add_reader(self._fd, self._read)

    def _leave(self) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        self._loop.remove_reader(self._fd)
        with suppress(termios.error):  # the terminal itself is gone (SIGHUP)
            termios.tcsetattr(self._fd, termios.TCSANOW, before)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1024)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
            self._press(END_OF_INPUT)
            return
        characters, self._rest = split_keys(self._rest + data)
        for character in characters:
            self._press(character)

    def _suspend(self) -> None:
        """Ctrl-Z: give the terminal back first, then stop as any program does."""
        self._shown(False)
        self._leave()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        signal.raise_signal(signal.SIGTSTP)
        # here again after SIGCONT
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._resume()

    def _resume(self) -> None:
        """In the background the terminal belongs to the shell: no keys, and nothing is drawn."""
        if self._foreground():
            self._enter()
            self._shown(True)
        else:
            self._shown(False)

    def _foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # not our controlling terminal, so no shell takes it from us
            return True
