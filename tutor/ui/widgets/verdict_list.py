"""The checks of a run as they finish: what was compared with what, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.widgets import Static

MARKS = {
    "pass": ("✓", "$success"),
    "fail": ("✗", "bold $error"),
    "error": ("✗", "bold $error"),
    "timeout": ("✗", "bold $error"),
    "running": ("…", "$accent"),
}
WORDS = {"error": "no answer", "timeout": "too slow"}
SHOWN_OUTPUT = 12


@dataclass(frozen=True)
class CheckRow:
    """One check. `status`: running or as in a verdict; `recorded`: it can be replayed."""

    name: str
    status: str
    against: str = ""
    message: str = ""
    expected: str = ""
    actual: str = ""
    where: str = ""
    recorded: bool = False


class VerdictList(Static):
    """Draws rows, then a headline; both are given, nothing is judged here."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(
        self, rows: Sequence[CheckRow], headline: str, *, good: bool | None = None, output: str = ""
    ) -> None:
        """`good`: None while the outcome is open."""
        style = {None: "bold", True: "bold $success", False: "bold $error"}[good]
        lines = [Content.styled(headline, style)]
        told = ""  # one reason often fails several checks: tell it once
        for row in rows:
            lines += _row(row, told)
            told = row.message or told
        if output.strip():
            printed = output.rstrip().splitlines()
            lines += [Content(""), Content.styled("Your code printed:", "$secondary")]
            lines += [Content(f"  {line}") for line in printed[:SHOWN_OUTPUT]]
            if len(printed) > SHOWN_OUTPUT:
                lines.append(Content.styled(f"  … {len(printed) - SHOWN_OUTPUT} more lines", "$secondary"))
        self.update(Content("\n").join(lines))


def _row(row: CheckRow, told: str) -> list[Content]:
    mark, style = MARKS[row.status]
    word = f" ({WORDS[row.status]})" if row.status in WORDS else ""
    lines = [Content.assemble((f"{mark} {row.name}{word}", style))]
    if row.status == "pass":
        return lines
    if row.message and row.message == told:
        return [*lines, Content.styled("  for the same reason", "$secondary")]
    if row.against:
        lines.append(Content.styled(f"  {row.against}", "$secondary"))
    lines += [Content(f"  {line}") for line in row.message.splitlines()]
    for label, text in (("where", row.where), ("expected", row.expected), ("got", row.actual)):
        if text and text not in row.message:
            lines.append(Content.assemble((f"  {label:<9}", "$secondary"), text))
    if row.recorded:
        lines.append(Content.styled("  p replays what your code did, at the step that went wrong", "$accent"))
    return lines
