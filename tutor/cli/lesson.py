"""`tutor lesson ID`: a lesson's text, with its numbers computed, for reading or for a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tutor.cli.course_view import (
    COULD_NOT_RUN,
    USAGE,
    complete_lesson,
    open_course,
    output_width,
    print_json,
    printable,
    stop,
    to_ascii,
    use_ascii,
    warn,
)
from tutor.curriculum.errors import CourseError, UnknownLesson
from tutor.curriculum.loader import read_lesson
from tutor.curriculum.render import LessonText
from tutor.curriculum.schema import Lesson
from tutor.journal.events import LessonOpened
from tutor.journal.store import Journal, JournalError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Heading

_MEASURE = 88  # columns; longer lines are hard to read


@click.command("lesson")
@click.argument("name", metavar="ID", shell_complete=complete_lesson)
@click.option("--json", "as_json", is_flag=True, help="Print the lesson as JSON, its text as markdown.")
@click.pass_context
def command(ctx: click.Context, name: str, as_json: bool) -> None:
    """Read a lesson as plain text. ID is a lesson's id, alias or title (see `tutor list`)."""
    course = open_course()
    try:
        lesson = course.find(name)
        text = read_lesson(lesson)
    except UnknownLesson as error:
        stop(str(error), USAGE)
    except CourseError as error:
        stop(str(error), COULD_NOT_RUN)
    if as_json:
        print_json(_as_dict(lesson, text))
    else:
        ascii_only = use_ascii(ctx)
        shown = rendered(_whole(lesson, text), ascii_only)
        click.echo(printable(shown))
    try:
        Journal().append(LessonOpened(lesson=lesson.id))
    except JournalError as error:
        warn((f"This visit was not noted. {error}",))  # the text is what was asked for, and it is there


def _as_dict(lesson: Lesson, text: LessonText) -> dict[str, object]:
    return {
        "id": lesson.id,
        "title": lesson.title,
        "stage": lesson.stage,
        "minutes": lesson.minutes,
        "reading_minutes": text.reading_minutes,
        "difficulty": lesson.difficulty or None,
        "line": lesson.line,
        "needs": lesson.needs,
        "unlocks": lesson.unlocks,
        "objectives": lesson.objectives,
        "markdown": text.markdown,
        "sections": [{"title": section.title, "markdown": section.markdown} for section in text.sections],
    }


def _whole(lesson: Lesson, text: LessonText) -> str:
    """The lesson with a head: what it is about, how long it takes, what one can do afterwards."""
    facts = f"Stage {lesson.stage}, about {lesson.minutes} minutes."
    if lesson.needs:
        facts += f" Needs {', '.join(lesson.needs)}."
    facts += f" Reading takes about {text.reading_minutes} min."
    if lesson.difficulty:
        facts += f" Difficulty {lesson.difficulty} of 5."
    goals = "\n".join(f"- {objective}" for objective in lesson.objectives)
    return (
        f"# {lesson.title}\n\n{lesson.line}\n\n{facts}\n\nAfterwards you can:\n\n{goals}\n\n{text.markdown}"
    )


def rendered(markdown: str, ascii_only: bool) -> str:
    """Markdown as text for this terminal; without any escape codes when standard output is a pipe."""
    from rich.console import Console
    from rich.markdown import Markdown

    elements = Markdown.elements | {"heading_open": _plain_heading(ascii_only)}
    text_of = type("PlainMarkdown", (Markdown,), {"elements": elements})
    console = Console(width=min(output_width(), _MEASURE))
    with console.capture() as capture:
        console.print(text_of(markdown, code_theme="ansi_dark", hyperlinks=False))
    text = "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n")
    return to_ascii(text) if ascii_only else text


def _plain_heading(ascii_only: bool) -> type[Heading]:
    """Headings on the left, without a box: calm on a screen, clean in a file."""
    from rich.markdown import Heading
    from rich.text import Text

    class PlainHeading(Heading):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            title = self.text.copy()
            title.justify = "left"
            if self.tag == "h1":
                yield title
                yield Text(("=" if ascii_only else "═") * len(title))
            else:
                yield Text("")
                yield title

    return PlainHeading
