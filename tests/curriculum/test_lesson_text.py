from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tutor.curriculum.loader import load_course, read_lesson
from tutor.curriculum.render import LessonText

Write = Callable[..., Path]

TEXT = """{%- set m = model("smollm2-135m") -%}
Before the first heading.

## Size

One token takes {{ kv_bytes_per_token("smollm2-135m") | commas }} bytes; 1024 cells take
{{ kv_bytes(model="smollm2-135m", tokens=1024) | mib }}. {{ m.name }} has {{ m.layers }} layers.
{{ max(ceil(2.1), floor(3.9), round(1.6), sum([1, 1]), len("ab")) }}

```
## not a heading
```

~~~
``` still inside
## nor this
~~~

### A smaller heading

Measured: {{ measured("hi_tokens") }} tokens, {{ (measured("list") | length) }} items.

## Sources

- A paper.

## Recap

Five lines.
"""


def _text(write_course: Write) -> LessonText:
    folder = write_course({"a": []}, written=["a"])
    (folder / "01-a" / "lesson.md").write_text(TEXT)
    (folder / "01-a" / "measured.toml").write_text("hi_tokens = 31\nlist = [1, 2, 3]\n")
    return read_lesson(load_course(folder)["a"])


def test_numbers_are_computed(write_course: Write) -> None:
    text = _text(write_course)
    assert "One token takes 23,040 bytes" in text.markdown
    assert "22.5 MiB. SmolLM2-135M has 30 layers." in text.markdown
    assert "\n3\n" in text.markdown
    assert "Measured: 31 tokens, 3 items." in text.markdown


def test_sections_are_cut_outside_code_fences(write_course: Write) -> None:
    text = _text(write_course)
    assert [section.title for section in text.sections] == ["", "Size", "Sources", "Recap"]
    assert "## not a heading" in text.sections[1].markdown
    assert "## nor this" in text.sections[1].markdown
    assert "### A smaller heading" in text.sections[1].markdown


def test_the_recap_has_its_own_tab(write_course: Write) -> None:
    text = _text(write_course)
    assert text.recap == "Five lines."
    assert text.read.startswith("Before the first heading.")
    assert "## Sources" in text.read
    assert "Five lines." not in text.read
