"""Short lesson strings with `code` and **bold** as Textual content."""

from __future__ import annotations

import re

from textual.content import Content

_MARK = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")


def inline(text: str) -> Content:
    parts: list[Content | tuple[str, str]] = []
    at = 0
    for match in _MARK.finditer(text):
        parts.append(Content(text[at : match.start()]))
        code, bold, italic = match.groups()
        if code:
            parts.append((code, "bold $primary"))
        elif bold:
            parts.append((bold, "bold"))
        else:
            parts.append((italic, "italic"))
        at = match.end()
    return Content.assemble(*parts, Content(text[at:]))
