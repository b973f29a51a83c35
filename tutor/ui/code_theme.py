"""Colours of Python code in the tutor's editor. Imported with the first exercise."""

from __future__ import annotations

from rich.style import Style
from textual.widgets.text_area import TextAreaTheme

_KEYWORD = Style(color="#c594c5")
_STRING = Style(color="#99c794")
_NUMBER = Style(color="#e3a857")
_NAME = Style(color="#6ca0dc")
_QUIET = Style(color="#7d8896", italic=True)

CODE_THEME = TextAreaTheme(
    name="tutor",
    base_style=Style(color="#ccd3db", bgcolor="#14171c"),
    gutter_style=Style(color="#566070", bgcolor="#14171c"),
    cursor_style=Style(color="#14171c", bgcolor="#ccd3db"),
    cursor_line_style=Style(bgcolor="#1a1e25"),
    cursor_line_gutter_style=Style(color="#e3b341", bgcolor="#1a1e25"),
    bracket_matching_style=Style(bold=True, underline=True),
    selection_style=Style(bgcolor="#2f4a6b"),
    syntax_styles={
        "comment": _QUIET,
        "string": _STRING,
        "string.documentation": _STRING,
        "number": _NUMBER,
        "float": _NUMBER,
        "boolean": _NUMBER,
        "constant.builtin": _NUMBER,
        "keyword": _KEYWORD,
        "keyword.function": _KEYWORD,
        "keyword.return": _KEYWORD,
        "keyword.operator": _KEYWORD,
        "conditional": _KEYWORD,
        "repeat": _KEYWORD,
        "exception": _KEYWORD,
        "include": _KEYWORD,
        "function": _NAME,
        "function.call": _NAME,
        "method": _NAME,
        "method.call": _NAME,
        "class": Style(color="#6ca0dc", bold=True),
        "type.builtin": Style(color="#5fc0c0"),
        "type": Style(color="#5fc0c0"),
    },
)
