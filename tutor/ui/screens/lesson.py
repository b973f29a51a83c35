"""A lesson: Read → Predict → Lab → Exercise → Recap, one section at a time under a bar of all five."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from tutor.curriculum.errors import CourseError
from tutor.curriculum.loader import read_lab, read_lesson, read_quiz
from tutor.curriculum.render import LessonText
from tutor.curriculum.schema import LabSpec, Lesson, Question
from tutor.journal.events import LessonOpened, PredictionMade, SectionReached
from tutor.ui.lesson_text import about_exercise, about_lab, unlock_text
from tutor.ui.quiz import QuizPane
from tutor.ui.screens.base import Help, KeyBar, TitleBar, TutorScreen
from tutor.ui.services import Services
from tutor.ui.widgets.section_bar import SectionBar

TITLES = {"read": "Read", "predict": "Predict", "lab": "Lab", "exercise": "Exercise", "recap": "Recap"}
KEYS = (
    ("n", "next section", "screen.step(1)"),
    ("b", "back one", "screen.step(-1)"),
    ("?", "help", "screen.help"),
    ("Esc", "map", "screen.back"),
)
ENTER = {
    "lab": ("Enter", "open the lab", "screen.enter"),
    "exercise": ("Enter", "open the exercise", "screen.enter"),
}


class LessonScreen(TutorScreen):
    """`test`: testing out shows the questions and the exercise only."""

    CSS_PATH = ["lesson.tcss", "../widgets/question.tcss"]  # noqa: RUF012 (Textual declares its type)
    HELP_TITLE = "a lesson"
    ALL_KEYS: ClassVar[Help] = (
        ("n  b", "next section, section before"),
        ("↑ ↓ PgUp PgDn Space", "scroll"),
        ("Enter", "commit an answer; open the lab or the exercise"),
        ("1 to 9", "choose an answer"),
        ("a", "after an answer: the same question with fresh numbers"),
        ("Esc", "back to the map"),
        ("✓  ◇  ·", "a section that is done, seen, not seen yet"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "step(1)", show=False),
        Binding("b", "step(-1)", show=False),
        Binding("enter", "enter", show=False),
        Binding("space", "page", show=False),
    ]

    def __init__(self, services: Services, lesson: Lesson, *, test: bool = False) -> None:
        super().__init__(services)
        self.lesson = lesson
        self._test = test
        self.section = ""
        self._text: LessonText | None = None
        self._questions: tuple[Question, ...] = ()
        self._lab: LabSpec | None = None
        self._problem = ""
        try:
            self._text = read_lesson(lesson)
            self._questions = read_quiz(lesson)
            self._lab = read_lab(lesson)
        except CourseError as error:
            self._problem = f"This lesson cannot be shown whole: {error}"

    @property
    def sections(self) -> tuple[str, ...]:
        if self._test:
            return ("predict", "exercise")
        present = {"predict": bool(self._asked_here), "lab": self._lab is not None}
        return tuple(name for name in TITLES if present.get(name, True))

    @property
    def _asked_here(self) -> tuple[Question, ...]:
        """The lab asks some of the questions itself, unless there is no lab to come."""
        later = self._lab.predict if self._lab and not self._test else ()
        return tuple(question for question in self._questions if question.id not in later)

    def body(self) -> ComposeResult:
        facts = f"stage {self.lesson.stage} · {self.lesson.minutes} min"
        if self.lesson.difficulty:
            facts += f" · difficulty {self.lesson.difficulty}/5"
        yield TitleBar(self.lesson.title, facts)
        yield SectionBar()
        if self._problem:
            yield Static(self._problem, id="problem", markup=False)
        yield Vertical(id="sections")
        yield KeyBar(KEYS)

    async def on_mount(self) -> None:
        self.record(LessonOpened(lesson=self.lesson.id))
        reached = self.services.progress.lesson(self.lesson.id).sections
        known = [name for name in self.sections if TITLES[name] in reached]
        done = self.services.states[self.lesson.id].status == "done"
        await self.go(known[-1] if known and not done else self.sections[0])

    def on_screen_resume(self) -> None:
        """Back from the lab or the exercise."""
        if self.section in ("lab", "exercise", "recap"):
            self.call_later(self._rebuild)

    async def _rebuild(self) -> None:
        name = self.section
        await self.query(f"#section-{name}").remove()
        await self.go(name)

    # --- sections -------------------------------------------------------------------------------

    async def action_go(self, name: str) -> None:
        await self.go(name)

    async def go(self, name: str) -> None:
        """Show a section; it is built when it is first seen."""
        if name not in self.sections:
            return
        self.section = name
        holder = self.query_one("#sections")
        pane = next(iter(holder.query_children(f"#section-{name}")), None)
        if pane is None:
            makers: dict[str, Callable[[], Widget]] = {
                "read": self._make_read,
                "predict": self._make_predict,
                "lab": self._make_lab,
                "exercise": self._make_exercise,
                "recap": self._make_recap,
            }
            pane = makers[name]()
            pane.id = f"section-{name}"
            pane.add_class("section")
            await holder.mount(pane)
        for other in holder.children:
            other.display = other is pane
        if isinstance(pane, QuizPane):
            pane.take_focus()
        else:
            pane.focus()
        if TITLES[name] not in self.services.progress.lesson(self.lesson.id).sections:
            self.record(SectionReached(lesson=self.lesson.id, section=TITLES[name]))
        self._show_place()

    def _show_place(self) -> None:
        rows = [(name, TITLES[name], self._state_of(name)) for name in self.sections]
        self.query_one(SectionBar).show(rows, self.section)
        extra = (ENTER[self.section],) if self.section in ENTER else ()
        self.query_one(KeyBar).show((*extra, *KEYS))

    def _state_of(self, name: str) -> str:
        """Text is done when it was shown; the rest when it was answered, run or passed."""
        progress = self.services.progress.lesson(self.lesson.id)
        if TITLES[name] not in progress.sections:
            return ""
        answered = {prediction.question for prediction in progress.predictions}
        done = {
            "predict": all(question.id in answered for question in self._asked_here),
            "lab": progress.lab_runs > 0,
            "exercise": self.services.progress.exercise(self.lesson.id).passed,
        }
        return "done" if done.get(name, True) else "seen"

    async def action_step(self, step: int) -> None:
        at = self.sections.index(self.section) + step
        if 0 <= at < len(self.sections):
            await self.go(self.sections[at])

    def action_page(self) -> None:
        """A page further down, as in a pager."""
        pane = self.query_one(f"#section-{self.section}")
        if isinstance(pane, VerticalScroll):
            pane.scroll_page_down()

    def _make_read(self) -> Widget:
        return self._markdown(self._text.read if self._text else "")

    def _make_recap(self) -> Widget:
        text = self._text.recap if self._text else ""
        course, states = self.services.course, self.services.states
        return self._markdown(f"## Recap\n\n{text}\n\n{unlock_text(self.lesson, course, states)}")

    def _markdown(self, text: str) -> Widget:
        from textual.widgets import Markdown

        return VerticalScroll(Markdown(text, open_links=False))

    def _make_predict(self) -> Widget:
        after = "Enter goes to the exercise." if self._test else "Enter goes on."
        return QuizPane(self._asked_here, after)

    def _make_lab(self) -> Widget:
        assert self._lab is not None  # the section exists only with a lab
        runs = self.services.progress.lesson(self.lesson.id).lab_runs
        return _text_pane(about_lab(self._lab, runs, asks_first=bool(self._unanswered)))

    def _make_exercise(self) -> Widget:
        return _text_pane(about_exercise(self.lesson, self.services.progress.exercise(self.lesson.id)))

    # --- predictions ----------------------------------------------------------------------------

    @property
    def _unanswered(self) -> tuple[Question, ...]:
        """Questions that the lab wants answered first."""
        wanted = self._lab.predict if self._lab else ()
        made = {
            prediction.question for prediction in self.services.progress.lesson(self.lesson.id).predictions
        }
        return tuple(q for q in self._questions if q.id in wanted and q.id not in made)

    @on(QuizPane.Answered)
    def _answered(self, event: QuizPane.Answered) -> None:
        scored = event.scored
        self.record(
            PredictionMade(
                lesson=self.lesson.id,
                question=event.question,
                answer=scored.answer,
                expected=scored.expected,
                correct=scored.correct,
            )
        )

    @on(QuizPane.Finished)
    def _finished(self) -> None:
        self.query_one("#sections").focus()

    # --- going in -------------------------------------------------------------------------------

    def action_enter(self) -> None:
        if self.section == "lab" and self._lab is not None:
            if self._unanswered:
                from tutor.ui.screens.predict import PredictScreen

                self.app.push_screen(
                    PredictScreen(self.services, self.lesson, self._unanswered), self._run_lab
                )
            else:
                self._run_lab(True)
        elif self.section == "predict":
            for pane in self.query(QuizPane):
                if pane.ended:
                    self.call_later(self.action_step, 1)
        elif self.section == "exercise":
            from tutor.ui.screens.exercise import ExerciseScreen

            self.app.push_screen(ExerciseScreen(self.services, self.lesson), self._exercise_left)

    def _run_lab(self, predicted: bool | None) -> None:
        if not predicted or self._lab is None:
            return
        from tutor.ui.screens.lab import lab_screen

        self.app.push_screen(lab_screen(self.services, self._lab, self.lesson.id))

    async def _exercise_left(self, wish: None) -> None:
        """After a pass the recap comes next."""
        if self.services.progress.exercise(self.lesson.id).last_passed and "recap" in self.sections:
            await self.go("recap")


def _text_pane(text: Content) -> Widget:
    return VerticalScroll(Static(text, markup=False))
