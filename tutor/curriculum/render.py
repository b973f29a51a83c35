"""Computes the numbers in lesson text and quiz strings: Jinja2 in a sandbox, undefined names are errors.

Jinja2 takes long to import, so it is imported when the first lesson is opened.
"""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tomli

from tutor.curriculum import formulas
from tutor.curriculum.errors import CourseError
from tutor.curriculum.formatters import FILTERS
from tutor.curriculum.toml_file import read_text

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.environment import TemplateExpression
    from jinja2.sandbox import ImmutableSandboxedEnvironment

_BUILTINS: dict[str, Callable[..., Any]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "min": min,
    "max": max,
    "round": round,
    "sum": sum,
    "len": len,
}

# What a formula or an expression can raise on a wrong argument; TemplateError covers the rest.
_CALL_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)

# Adults read prose at about 240 words a minute [Brysbaert 2019]; text with formulas is slower.
WORDS_PER_MINUTE = 180


class Section(msgspec.Struct, frozen=True):
    """A `## ` heading and the text below it. The text before the first heading has no title."""

    title: str
    markdown: str


class LessonText(msgspec.Struct, frozen=True):
    """A lesson with its numbers filled in. `read` is all before the recap, headings included."""

    markdown: str
    sections: tuple[Section, ...]
    read: str
    recap: str

    @property
    def reading_minutes(self) -> int:
        """Whole minutes to read it once, rounded up, at WORDS_PER_MINUTE."""
        return math.ceil(len(self.markdown.split()) / WORDS_PER_MINUTE)


def formula_names() -> dict[str, Callable[..., Any]]:
    """Every name that lesson text may call, `measured` aside."""
    own = {
        name: value
        for name, value in vars(formulas).items()
        if callable(value) and value.__module__ == formulas.__name__ and not name.startswith("_")
    }
    return _BUILTINS | own


def measured_values(folder: Path) -> dict[str, Any]:
    """The generated `measured.toml` of a lesson folder; empty when the lesson measures nothing."""
    path = folder / "measured.toml"
    if not path.exists():
        return {}
    try:
        return tomli.loads(read_text(path))
    except tomli.TOMLDecodeError as error:
        raise CourseError(error.msg, path, error.lineno) from None


def names_for(folder: Path) -> dict[str, Any]:
    """Formulas plus `measured(key)` of this lesson folder."""
    values = functools.cache(lambda: measured_values(folder))

    def measured(key: str) -> Any:
        """A fact measured on the bundled model. Unknown keys raise LookupError."""
        if key not in values():
            raise LookupError(f"measured.toml has no {key!r}; `measure.py` of this lesson makes it")
        return values()[key]

    return formula_names() | {"measured": measured}


@functools.cache
def environment() -> ImmutableSandboxedEnvironment:
    """The sandbox that all templates run in."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    made = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    made.filters.update(FILTERS, ceil=math.ceil, floor=math.floor)
    return made


def render_file(path: Path) -> str:
    """The text of a template file with its numbers. Raises CourseError with the line at fault."""
    from jinja2 import Template, TemplateError, TemplateSyntaxError

    source = read_text(path)
    try:
        code = environment().compile(source, name=path.name, filename=str(path))
        template = Template.from_code(environment(), code, names_for(path.parent))
        return template.render()
    except TemplateSyntaxError as error:
        raise CourseError(f"template: {error.message}", path, error.lineno) from None
    except (TemplateError, *_CALL_ERRORS) as error:
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        raise CourseError(f"template: {error}", path, frames[-1] if frames else None) from None


@functools.lru_cache(maxsize=512)  # a question is asked again and again with other numbers
def _template(source: str) -> Template:
    return environment().from_string(source)


@functools.lru_cache(maxsize=512)
def _expression(source: str) -> TemplateExpression:
    return environment().compile_expression(source, undefined_to_none=False)


def render_string(source: str, names: Mapping[str, Any]) -> str:
    """A short template, such as a question. Raises CourseError without a place; the caller knows it."""
    from jinja2 import TemplateError

    try:
        return _template(source).render(names)
    except (TemplateError, *_CALL_ERRORS) as error:
        raise CourseError(f"template: {error}") from None


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression such as `p + n - 1`. Raises CourseError without a place."""
    from jinja2 import TemplateError, Undefined

    try:
        value = _expression(expression)(**names)
        if isinstance(value, Undefined):
            str(value)  # a strict undefined raises here and says which name it was
    except (TemplateError, *_CALL_ERRORS) as error:
        raise CourseError(f"expression {expression!r}: {error}") from None
    return value


def split_sections(markdown: str, path: Path) -> LessonText:
    """Cuts at `## ` headings outside code fences. The last section must be `## Recap`."""
    starts = _headings(markdown.splitlines(keepends=True))
    lines = markdown.splitlines(keepends=True)
    sections = []
    if "".join(lines[: starts[0] if starts else None]).strip():
        sections.append(Section("", "".join(lines[: starts[0] if starts else None]).strip()))
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        sections.append(Section(lines[start][3:].strip(), "".join(lines[start + 1 : end]).strip()))
    if not starts or sections[-1].title != "Recap":
        raise CourseError("the last section must be `## Recap`", path, starts[-1] + 1 if starts else 1)
    read = "".join(lines[: starts[-1]]).rstrip() + "\n"
    return LessonText(markdown, tuple(sections), read, sections[-1].markdown)


def _headings(lines: list[str]) -> list[int]:
    """Indices of the `## ` lines that are not inside a fenced code block."""
    found = []
    fence = ""
    for index, line in enumerate(lines):
        mark = line.lstrip()[:3]
        if fence:
            fence = "" if mark == fence else fence
        elif mark in ("```", "~~~"):
            fence = mark
        elif line.startswith("## "):
            found.append(index)
    return found
