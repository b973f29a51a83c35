"""What an exercise shows: task and hints, an editor and a verdict, beside each other or one at a time."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Markdown, Static, TextArea

from tutor.curriculum.schema import Lesson
from tutor.grading.errors import GradingError
from tutor.grading.exercise import Exercise, find_exercise
from tutor.ui.edited_file import EditedFile
from tutor.ui.screens.base import KeyBar, TitleBar, TutorScreen
from tutor.ui.services import Services
from tutor.ui.widgets.verdict_list import VerdictList

PANES = ("statement", "editor", "verdict")
KEYS = (
    ("Ctrl+S", "save and check", "screen.check"),
    ("Enter", "edit", "screen.pane('editor')"),
    ("e", "$EDITOR", "screen.external"),
    ("h", "hint", "screen.hint"),
    ("?", "help", "screen.help"),
    ("Esc", "back", "screen.back"),
)
EDITOR_KEYS = (
    ("Ctrl+S", "save and check", "screen.check"),
    ("F2", "task", "screen.pane('statement')"),
    ("F4", "$EDITOR", "screen.external"),
    ("Esc", "leave the editor", "screen.back"),
)
RUNNING_KEYS = (("Esc", "stop the check", "screen.back"),)


class ExerciseFrame(TutorScreen):
    """The panes. When exercise or file cannot be read, `_file` is None and a sentence stands there."""

    def __init__(self, services: Services, lesson: Lesson) -> None:
        super().__init__(services)
        self.lesson = lesson
        self.exercise: Exercise | None = None
        self._file: EditedFile | None = None
        self._problem = ""
        self._news: tuple[str, ...] = ()
        self._checking = False
        try:
            self.exercise = find_exercise(lesson.id)
            self._file = EditedFile(services.workspace, self.exercise)
            self._news = services.workspace.news(self.exercise)
        except GradingError as error:
            self._problem = str(error)

    def body(self) -> ComposeResult:
        where = str(self._file.path) if self._file else ""
        yield TitleBar(self.exercise.title if self.exercise else self.lesson.title, where)
        if self.exercise is None or self._file is None:
            yield Static(self._problem, id="problem", markup=False)
            yield KeyBar((("Esc", "back", "screen.back"),))
            return
        yield Static(id="pane-bar", markup=False)
        with Horizontal(id="panes"):
            with Vertical(id="side"):
                with VerticalScroll(id="statement", classes="pane"):
                    yield Static(id="opening", markup=False)
                    if self._news:
                        yield Static("\n".join(self._news), id="news", markup=False)
                    yield Markdown(self.exercise.statement, open_links=False)
                    yield Static(id="hints", markup=False)
                with VerticalScroll(id="verdict", classes="pane"):
                    yield VerdictList()
            yield TextArea.code_editor(
                self._file.text, language="python", id="editor", classes="pane", tab_behavior="indent"
            )
        yield KeyBar(KEYS)

    def say_on_opening(self, sentence: str, *, bad: bool = False) -> None:
        """Above the task, where it hides nothing, until the file is written. "" takes it away."""
        place = self.query_one("#opening", Static)
        place.set_class(bad, "-bad")
        place.update(sentence)
        place.display = bool(sentence)

    @property
    def editor(self) -> TextArea:
        return self.query_one("#editor", TextArea)

    def action_pane(self, name: str) -> None:
        if self._file is None:
            return
        for other in PANES:
            self.set_class(other == name, f"-pane-{other}")
        self.query_one(f"#{name}").focus()
        titles = {"statement": "F2 task", "editor": "F3 code", "verdict": "F5 verdict"}
        parts = [
            Content(f" {title} ")
            .stylize("bold reverse" if pane == name else "$secondary")
            .stylize(f"@click=screen.pane('{pane}')")
            for pane, title in titles.items()
        ]
        self.query_one("#pane-bar", Static).update(Content.assemble(*parts))

    def on_descendant_focus(self) -> None:
        self._show_keys()

    def _show_keys(self) -> None:
        in_editor = isinstance(self.focused, TextArea)
        keys = RUNNING_KEYS if self._checking else EDITOR_KEYS if in_editor else KEYS
        for bar in self.query(KeyBar):  # none while the screen goes away
            bar.show(keys)
