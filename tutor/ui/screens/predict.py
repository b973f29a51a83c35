"""Predict, then watch: the questions that a lab asks before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from tutor.curriculum.schema import Lesson, Question
from tutor.journal.events import PredictionMade
from tutor.ui.quiz import QuizPane
from tutor.ui.services import Services


class PredictScreen(ModalScreen[bool]):
    """Dismisses with True when every question was answered, with False on Esc."""

    CSS_PATH = ["predict.tcss", "../widgets/question.tcss"]  # noqa: RUF012 (Textual declares its type)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(False)", show=False)]

    def __init__(self, services: Services, lesson: Lesson, questions: Sequence[Question]) -> None:
        super().__init__()
        self._services = services
        self._lesson = lesson
        self._questions = tuple(questions)

    def compose(self) -> ComposeResult:
        with Vertical(id="predict"):
            yield Static("Predict, then watch", classes="title", markup=False)
            yield QuizPane(self._questions, "Now watch what happens.")

    @on(QuizPane.Answered)
    def _answered(self, event: QuizPane.Answered) -> None:
        scored = event.scored
        problem = self._services.record(
            PredictionMade(
                lesson=self._lesson.id,
                question=event.question,
                answer=scored.answer,
                expected=scored.expected,
                correct=scored.correct,
            )
        )
        if problem:
            self.notify(problem, severity="warning", markup=False)

    @on(QuizPane.Finished)
    def _finished(self) -> None:
        self.dismiss(True)
