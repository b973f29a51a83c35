"""What list, lesson and progress share: opening course and journal, state words, plain output."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click
import msgspec

from tutor.curriculum.dag import Course
from tutor.curriculum.errors import CourseError
from tutor.curriculum.loader import load_course
from tutor.curriculum.mastery import LessonState, lesson_states
from tutor.curriculum.schema import Lesson
from tutor.journal.progress import Progress, fold
from tutor.journal.store import Journal, JournalError

USAGE, COULD_NOT_RUN = 2, 3

_WIDE = 200  # columns for a pipe: one line a lesson, so that grep and awk see all of it
_GLYPHS = {"done": "✓", "ready": "◆", "in_progress": "◇", "locked": "·"}
_ASCII_GLYPHS = {"done": "x", "ready": ">", "in_progress": "~", "locked": "."}
_WORDS = {"done": "done", "ready": "ready", "in_progress": "in progress", "locked": "locked"}
STYLES = {"done": "green", "ready": "bold cyan", "in_progress": "yellow", "locked": "dim"}

# Drawing and typography as ASCII, one character for one, so that diagrams keep their shape.
_ASCII = str.maketrans(
    dict.fromkeys("─━═╌┄", "-")
    | dict.fromkeys("│┃║╎┆▌▐", "|")
    | dict.fromkeys("┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋╔╗╚╝╠╣╦╩╬╭╮╰╯", "+")
    | dict.fromkeys("█▓■▉▇▆▅▄▃▂▁", "#")
    | dict.fromkeys("▒░□", ":")
    | dict.fromkeys("→▶►⟶", ">")
    | dict.fromkeys("←◀◄", "<")
    | dict.fromkeys("↑▲", "^")
    | dict.fromkeys("↓▼", "v")
    | dict.fromkeys("•●○◆◇", "*")
    | dict.fromkeys("–—−", "-")
    | dict.fromkeys("“”„", '"')
    | dict.fromkeys("‘’", "'")
    | {"×": "x", "·": ".", "…": "...", "✓": "x", "≈": "~", "≤": "<=", "≥": ">=", "\u00a0": " "}
)


class Standing(msgspec.Struct, frozen=True):
    """The course and where the learner is in it. `warnings` are the journal's."""

    course: Course
    progress: Progress
    states: dict[str, LessonState]
    warnings: tuple[str, ...]


def standing() -> Standing:
    """Reads course and journal; a fault in either ends the command with one sentence and exit code 3."""
    course = open_course()
    try:
        contents = Journal().read()
    except JournalError as error:
        stop(str(error), COULD_NOT_RUN)
    progress = fold(contents.events)
    return Standing(course, progress, lesson_states(course, progress), contents.warnings)


def open_course() -> Course:
    """The course, or one sentence and exit code 3."""
    try:
        return load_course()
    except CourseError as error:
        stop(str(error), COULD_NOT_RUN)


def find_lesson(name: str) -> Lesson | None:
    """The lesson of this id, alias or title; None when there is none, or no course that could be read."""
    try:
        return load_course().find(name)
    except CourseError:
        return None


def stop(sentence: str, code: int) -> NoReturn:
    """Ends the command: the sentence goes to stderr."""
    click.echo(sentence, err=True)
    raise click.exceptions.Exit(code)


def warn(sentences: tuple[str, ...]) -> None:
    for sentence in sentences:
        click.echo(sentence, err=True)


def use_ascii(ctx: click.Context) -> bool:
    """`--ascii` was given, or standard output's encoding has no box characters."""
    if ctx.obj["ascii"]:
        return True
    try:
        "✓◆─│".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def output_width() -> int:
    """Columns to write for: COLUMNS, else the terminal's, else wide enough for anything (a pipe)."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if not sys.stdout.isatty():
        return _WIDE
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


def state_words(state: LessonState, ascii_only: bool) -> str:
    """Glyph and word, such as `◆ ready`."""
    glyph = (_ASCII_GLYPHS if ascii_only else _GLYPHS)[state.status]
    return f"{glyph} {'not written yet' if needs_writing(state) else _WORDS[state.status]}"


def needs_writing(state: LessonState) -> bool:
    """The lesson is locked because nobody has written it yet."""
    return not state.written and state.status == "locked"


def needs_words(state: LessonState) -> str:
    """`needs kv-math, batching +1`, or nothing when the lesson is open or not written yet."""
    if not state.missing or state.status != "locked" or not state.written:
        return ""
    more = f" +{len(state.missing) - 2}" if len(state.missing) > 2 else ""
    return f"needs {', '.join(state.missing[:2])}{more}"


def to_ascii(text: str) -> str:
    """Drawing characters and typography as ASCII; letters of any script stay as they are."""
    return text.translate(_ASCII)


def printable(text: str) -> str:
    """What standard output can encode; the rest becomes question marks."""
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, "replace").decode(encoding)


def print_json(data: Any) -> None:
    """Indented JSON on standard output, in ASCII so that every terminal and pipe takes it."""
    import json

    click.echo(json.dumps(data, indent=2))


def complete_lesson(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Lesson ids for the shell's Tab key; none while the course cannot be read."""
    from click.shell_completion import CompletionItem

    try:
        course = load_course()
    except CourseError:
        return []
    return [CompletionItem(x.id, help=x.title) for x in course if x.id.startswith(incomplete)]
