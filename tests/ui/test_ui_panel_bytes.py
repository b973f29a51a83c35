"""What a panel's line costs on a slow line: runs of one style are written as one."""

from __future__ import annotations

import pytest
from rich.style import Style

from tutor.ui.widgets.panels import make_panel
from tutor.ui.widgets.panels.base import Panel


def test_neighbours_of_one_style_are_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    styles = {"owner1": Style(color="red"), "now": Style(bold=True)}
    monkeypatch.setattr(Panel, "_style", lambda _, name: styles.get(name, Style()))
    line = (*((("▒", "owner1"),) * 40), ("", "muted"), ("█", "now"), ("█", "now"))
    strip = make_panel("slots")._strip(line, 0, 60)
    assert strip.text == "▒" * 40 + "██" + " " * 18
    assert [segment.text for segment in strip] == ["▒" * 40, "██", " " * 18]
