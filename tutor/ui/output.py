"""Whether the terminal keeps up with what is written to it."""

from __future__ import annotations

import select
import sys


def terminal_ready() -> bool:
    """False while a write to the terminal waits for room. Textual writes to the real stderr."""
    if sys.__stderr__ is None:
        return True
    _, ready, _ = select.select([], [sys.__stderr__], [], 0)
    return bool(ready)
