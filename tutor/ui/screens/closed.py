"""A lesson that cannot be opened yet: what it is about, why it is closed, and what to do instead."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tutor.curriculum.schema import Lesson
from tutor.ui.describe import bullets
from tutor.ui.services import Services


class ClosedScreen(ModalScreen[str]):
    """Dismisses with "", with "test", or with the id of the lesson to mark on the map."""

    CSS_PATH = "closed.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss('')", show=False),
        Binding("enter", "go", show=False),
        Binding("T", "test", show=False),
    ]

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__()
        self._services = services
        self._lesson = lesson
        self._state = services.states[lesson.id]
        self._target = self._next_lesson()

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="closed"):
            yield Static(Content("\n").join(self._lines()), markup=False)

    def _lines(self) -> list[Content]:
        course, lesson = self._services.course, self._lesson
        lines = [Content.styled(lesson.title, "bold"), Content(lesson.line), Content("")]
        if self._state.written:
            lines += [Content.styled("Locked. This lesson builds on:", "bold $accent")]
            lines += [Content(f"· {course[id].title}") for id in self._state.missing]
        else:
            lines += [
                Content.styled("Not written yet.", "bold $accent"),
                Content("It does not hold you up: what comes after it opens as if it were done."),
            ]
        lines += [Content(""), Content.styled("What it will teach you to do:", "bold")]
        lines += bullets(lesson.objectives, 62)
        lines.append(Content(""))
        if self._target:
            lines.append(Content.assemble(("Enter", "bold"), f" goes to {course[self._target].title}"))
        if self._state.written:
            lines.append(
                Content.assemble(("T", "bold"), " tests out: its questions and its exercise, without reading")
            )
        lines.append(Content.assemble(("Esc", "bold"), " back to the map"))
        return lines

    def _next_lesson(self) -> str:
        """The lesson that brings the learner further: a missing one that is open, or what comes next."""
        states = self._services.states
        path = self._services.course.path_to(self._lesson.id)
        behind = self._lesson.unlocks if not self._state.written else ()
        for id in (*path, *behind, *states):
            if states[id].status in ("ready", "in_progress"):
                return id
        return ""

    def action_go(self) -> None:
        self.dismiss(self._target)

    def action_test(self) -> None:
        if self._state.written:
            self.dismiss("test")
