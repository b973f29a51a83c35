"""`tutor watch` on a terminal: one frame that is repainted in place, only the rows that changed.

title                          where the file is
headline: what goes on, or the sum of the last verdict

the verdict, the task, hints or the list; Space turns the page when it does not fit

progress and the next exercise
keys
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size

from tutor.cli.course_view import to_ascii
from tutor.cli.verdict_view import sum_line
from tutor.cli.watch_view import standing_line, verdict_lines
from tutor.grading.exercise import Exercise
from tutor.grading.verdict import Verdict

KEYS = "h hint   r run   n next   l list   q quit"
_FRAME_ROWS = 6  # title, headline, two empty rows, progress, keys
_BAR = 20
_GREEN, _RED, _BOLD, _DIM, _PLAIN = "\x1b[32m", "\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_STYLES = {
    "Passed:": _GREEN,
    "Not passed:": _RED,
    "pass": _GREEN,
    "FAIL": _RED,
    "ERROR": _RED,
    "TIMEOUT": _RED,
}
_LABEL = re.compile(r"  (pass|FAIL|ERROR|TIMEOUT) +|([-*]|\d+\.) +")


class ScreenView:
    """Draws through `write`; nothing before `show(True)`, so that a background job leaves the shell alone."""

    def __init__(self, write: Callable[[str], object], ascii_only: bool, color: bool) -> None:
        self._write = write
        self._ascii = ascii_only
        self._color = color
        self._drawn: list[str] | None = None  # None: the whole frame has to be painted
        self._size = (80, 24)
        self._shown = False
        self._title = self._where = self._headline = self._progress = self._following = ""
        self._body: list[str] = []
        self._page: list[str] | None = None  # hints or list, in front of the body
        self._first = 0  # the row of the body that is shown first

    def show(self, shown: bool) -> None:
        """Begin to draw, or leave the cursor below the frame and stop."""
        if self._shown and not shown and self._drawn is not None:
            self._write(f"\x1b[{self._size[1]};1H\r\n")
        self._shown, self._drawn = shown, None
        self._draw()

    def resized(self) -> None:
        self._drawn = None
        self._draw()

    def opened(self, exercise: Exercise, path: Path, text: Sequence[str]) -> None:
        self._title, self._where = exercise.title, _home(path)
        self._headline = "Save the file and it is checked."
        self._set_body(text)

    def running(self, exercise: Exercise, part: str) -> None:
        self._headline = f"Checking {exercise.id}{part}…"
        self._draw()

    def verdict(self, exercise: Exercise, verdict: Verdict) -> None:
        self._headline = sum_line(verdict)
        ahead = f"n goes on to {self._following}." if self._following else "All exercises are passed."
        self._set_body([*verdict_lines(verdict), *(["", ahead] if verdict.passed else [])])

    def page(self, lines: Sequence[str]) -> None:
        self._page, self._first = list(lines), 0
        self._draw()

    def say(self, sentence: str, bad: bool = False) -> None:
        self._headline = sentence
        self._draw()

    def standing(self, passed: int, total: int, following: str) -> None:
        self._following = following
        filled = round(_BAR * passed / total) if total else 0
        bar = "█" * filled + "░" * (_BAR - filled)
        self._progress = f"{bar} {standing_line(passed, total, following)}"
        self._draw()

    def back(self) -> None:
        """From hints or list to the verdict."""
        self._page, self._first = None, 0
        self._draw()

    def turn(self) -> None:
        """The next page, after the last one the first again."""
        room = self._room
        self._first = self._first + room if self._first + room < len(self._rows()) else 0
        self._draw()

    def _set_body(self, lines: Sequence[str]) -> None:
        self._body, self._page, self._first = list(lines), None, 0
        self._draw()

    @property
    def _room(self) -> int:
        return max(1, self._size[1] - _FRAME_ROWS)

    def _rows(self) -> list[str]:
        """The body in rows of the screen. The line of a passed check is cut, everything else is wrapped."""
        width = self._size[0]
        rows: list[str] = []
        for line in self._body if self._page is None else self._page:
            text = _printable(line)
            if text.startswith("  pass "):
                rows.append(_cut(text, width))
                continue
            first = " " * min(len(text) - len(text.lstrip()), width // 2)
            rest = " " * min(_hang(text), width // 2)
            rows += textwrap.wrap(text.strip(), width, initial_indent=first, subsequent_indent=rest) or [""]
        return rows

    def _frame(self) -> list[str]:
        width = self._size[0]
        rows = self._rows()
        shown = rows[self._first : self._first + self._room]
        keys = KEYS
        if len(rows) > self._room:
            last = min(self._first + self._room, len(rows))
            keys = f"Space more ({last}/{len(rows)})   {keys}"
        if self._page is not None:
            keys = f"Enter back   {keys}"
        where = _cut_left(self._where, max(0, width - cell_len(self._title) - 2))
        gap = " " * max(0, width - cell_len(self._title) - cell_len(where))
        frame = [
            self._styled(_cut(self._title, width), _BOLD) + self._styled(gap + where, _DIM),
            self._styled(_cut(_printable(self._headline), width), self._style_of(self._headline)),
            "",
            *(self._body_row(row) for row in shown),
            *[""] * (self._room - len(shown)),
            "",
            _cut(self._progress, width),
            self._styled(_cut(keys, width), _DIM),
        ]
        return [to_ascii(row) for row in frame] if self._ascii else frame

    def _draw(self) -> None:
        if not self._shown:
            return
        size = shutil.get_terminal_size()
        if self._drawn is None or self._size != (size.columns, size.lines):
            self._size, self._drawn = (size.columns, size.lines), None
        frame = self._frame()[: self._size[1]]
        out = ["\x1b[?7l"]  # a character that is wider than we think must not wrap
        if self._drawn is None:  # what was on the screen goes into the terminal's scrollback, not away
            out.append("\n" * self._size[1] + "\x1b[2J")
        for number, row in enumerate(frame):
            if self._drawn is None or row != self._drawn[number]:
                out.append(f"\x1b[{number + 1};1H\x1b[K{row}")  # erased first: the row may fill the line
        out.append(f"\x1b[{len(frame)};1H\x1b[?7h")
        self._drawn = frame
        if len(out) > 2:
            self._write("".join(out))

    def _body_row(self, row: str) -> str:
        found = _LABEL.match(row)
        style = _STYLES.get(found[1], "") if found else ""
        return f"  {self._styled(row[2:10], style)}{row[10:]}" if style else row

    def _style_of(self, headline: str) -> str:
        return next((style for start, style in _STYLES.items() if headline.startswith(start)), _BOLD)

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_PLAIN}" if self._color and text.strip() else text


def _hang(text: str) -> int:
    """Columns that the second row of a wrapped line is moved in: below the text of a check or list item."""
    if found := _LABEL.match(text):
        return found.end()
    return len(text) - len(text.lstrip())


def _printable(text: str) -> str:
    """Without what would move the cursor: the learner's code may print anything."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def _cut_left(text: str, width: int) -> str:
    while cell_len(text) > width and len(text) > 1:
        text = "…" + text[2:]
    return text if cell_len(text) <= width else ""


def _home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
