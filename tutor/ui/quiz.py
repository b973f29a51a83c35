"""A run through some questions: asks each with fresh numbers, scores it, and reports every answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from tutor.curriculum.errors import CourseError
from tutor.curriculum.quiz import AnswerNotUnderstood, Asked, Scored, instantiate
from tutor.curriculum.schema import Question
from tutor.ui.widgets.question import QuestionBox


class QuizPane(VerticalScroll, can_focus=False):
    """Holds its place; knows nothing of the journal. `end` is what to say after the last question."""

    class Answered(Message):
        def __init__(self, question: str, scored: Scored) -> None:
            super().__init__()
            self.question = question
            self.scored = scored

    class Finished(Message):
        """All questions were answered and the learner wants to go on."""

    def __init__(self, questions: Sequence[Question], end: str, rng: random.Random | None = None) -> None:
        super().__init__()
        self._questions = tuple(questions)
        self._end = end
        self._rng = rng or random.Random()
        self._at = 0
        self._right: dict[str, bool] = {}
        self._asked: Asked | None = None

    async def on_mount(self) -> None:
        await self._ask()

    async def _ask(self) -> None:
        """Put the current question on the screen, or the summary after the last one."""
        await self.remove_children()
        if self._at >= len(self._questions):
            right = sum(self._right.values())
            summary = Content.assemble(
                (f"{right} of {len(self._questions)} right. ", "bold"), self._end,
            )  # fmt: skip
            await self.mount(Static(summary, classes="end", markup=False))
            return
        question = self._questions[self._at]
        try:
            self._asked = asked = instantiate(question, self._rng)
        except CourseError as error:
            await self.mount(Static(f"This question cannot be asked: {error}", markup=False))
            return
        head = f"Question {self._at + 1} of {len(self._questions)}"
        await self.mount(QuestionBox(head, asked.prompt, asked.unit, asked.choices))

    @property
    def ended(self) -> bool:
        return self._at >= len(self._questions)

    def take_focus(self) -> None:
        for box in self.query(QuestionBox):
            box.take_focus()

    @on(QuestionBox.Committed)
    def _committed(self, event: QuestionBox.Committed) -> None:
        event.stop()
        box = self.query_one(QuestionBox)
        if self._asked is None or box.scored:
            return
        try:
            scored = self._asked.score(event.answer)
        except AnswerNotUnderstood as error:
            box.tell(str(error), "$warning")
            return
        self._right[self._asked.id] = scored.correct
        box.show_score(scored.correct, scored.answer, scored.expected, scored.explanation)
        self.post_message(self.Answered(self._asked.id, scored))

    @on(QuestionBox.Again)
    async def _again(self, event: QuestionBox.Again) -> None:
        event.stop()
        await self._ask()

    @on(QuestionBox.Continue)
    async def _continue(self, event: QuestionBox.Continue) -> None:
        event.stop()
        self._at += 1
        if self.ended:
            self.post_message(self.Finished())
        await self._ask()
