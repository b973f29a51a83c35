"""Home: the map of all lessons, what the marked one is about, and the way into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tutor.curriculum.mastery import done_words
from tutor.ui import describe
from tutor.ui.screens.base import MIN_WIDTH, Help, KeyBar, TitleBar, TutorScreen
from tutor.ui.widgets.course_map import CourseMap

if TYPE_CHECKING:
    from textual.widgets import Input

    from tutor.ui.services import Services

FIRST_TIME = (
    "Each card is a lesson; lines lead from what it needs to what it unlocks.\n"
    "Arrow keys walk along them, Enter opens. Start with a card that says ready.\n"
    "? shows the keys of any screen, q quits here. Everything you do is kept."
)


class MapScreen(TutorScreen):
    HELP_TITLE = "the map"
    ALL_KEYS: ClassVar[Help] = (
        ("← → ↑ ↓", "walk along the lessons"),
        ("Enter", "open the marked lesson (a click marks, a second one opens)"),
        ("/", "search by title; ↑ ↓ go through what was found"),
        ("T", "test out: take the questions and the exercise without reading"),
        ("Home End", "first and last lesson"),
        ("?", "this help"),
        ("q", "quit"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", show=False),
        Binding("T", "test_out", show=False),
        Binding("q", "app.leave", show=False),
        Binding("escape", "end_search", show=False),
    ]
    KEYS = (
        ("Enter", "open", "screen.open"),
        ("/", "search", "screen.search"),
        ("T", "test out", "screen.test_out"),
        ("?", "help", "screen.help"),
        ("q", "quit", "app.leave"),
    )

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._found: tuple[str, ...] = ()
        self._left = False  # another screen was shown since

    def body(self) -> ComposeResult:
        s = self.services
        marked = describe.first_choice(s.course, s.states, s.progress)
        yield TitleBar("INFERENCE TUTOR", self._where())
        if s.problems:
            yield Static("\n".join(s.problems), id="problems", markup=False)
        elif not s.progress.num_events:
            yield Static(FIRST_TIME, id="first-time", markup=False)
        with Horizontal():
            yield CourseMap(describe.cards(s.course, s.states), marked)
            with VerticalScroll(id="panel", can_focus=False):
                yield Static(self._detail(marked), id="detail", markup=False)
        yield Static(self._strip(marked), id="strip", markup=False)
        yield KeyBar(self.KEYS)

    def _where(self) -> str:
        return done_words(self.services.states)

    @property
    def map(self) -> CourseMap:
        return self.query_one(CourseMap)

    def on_mount(self) -> None:
        self.map.focus()

    def on_resize(self) -> None:
        self.query_one("#strip", Static).update(self._strip(self.map.marked), layout=False)

    def on_screen_suspend(self) -> None:
        self._left = True

    def on_screen_resume(self) -> None:
        """Back from a lesson: states may have changed."""
        if not self._left:
            return
        s = self.services
        if s.progress.num_events:
            self.query("#first-time").remove()
        self.map.show(describe.cards(s.course, s.states))
        self.query_one(TitleBar).say("INFERENCE TUTOR", self._where())
        self._show()

    def _detail(self, lesson: str) -> Content:
        s = self.services
        return describe.panel(s.course[lesson], s.states, s.progress, s.course)

    def _strip(self, lesson: str) -> Content:
        s = self.services
        width = max(MIN_WIDTH, self.app.size.width) - 2  # without the padding of the line
        return describe.strip(s.course[lesson], s.states, s.progress, s.course, width)

    def _show(self) -> None:
        marked = self.map.marked
        self.query_one("#detail", Static).update(self._detail(marked))
        self.query_one("#strip", Static).update(self._strip(marked), layout=False)
        self.query_one("#panel").scroll_home(animate=False)

    @on(CourseMap.Marked)
    def _marked(self) -> None:
        self._show()

    @on(CourseMap.Opened)
    def _opened(self, event: CourseMap.Opened) -> None:
        self._open(event.lesson)

    def action_open(self) -> None:
        self._open(self.map.marked)

    def _open(self, id: str, *, test: bool = False) -> None:
        lesson = self.services.course[id]
        state = self.services.states[id]
        if not state.written or (state.status == "locked" and not test):
            from tutor.ui.screens.closed import ClosedScreen

            self.app.push_screen(ClosedScreen(self.services, lesson), self._chosen)
            return
        from tutor.ui.screens.lesson import LessonScreen

        self.app.push_screen(LessonScreen(self.services, lesson, test=test))

    def _chosen(self, wish: str | None) -> None:
        """What was chosen on the screen of a lesson that cannot be opened: another lesson, or its test."""
        if wish == "test":
            self._open(self.map.marked, test=True)
        elif wish:
            self.map.mark(wish)

    def action_test_out(self) -> None:
        self._open(self.map.marked, test=True)

    # --- search ---------------------------------------------------------------------------------

    def action_search(self) -> None:
        from tutor.ui.widgets.search import SearchBar

        if not self.has("SearchBar"):
            self.mount(SearchBar())

    def action_end_search(self) -> None:
        if self.has("SearchBar"):
            self.query("SearchBar").remove()
            self.query_one(TitleBar).say("INFERENCE TUTOR", self._where())
            self.map.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        wanted = event.value.strip().casefold()
        self._found = tuple(
            lesson.id
            for lesson in self.services.course
            if wanted
            and any(wanted in name.casefold() for name in (lesson.title, lesson.id, *lesson.aliases))
        )
        if self._found:
            self.map.mark(self._found[0])
        self._say_found(wanted)

    def _say_found(self, wanted: str) -> None:
        """In the title line: how many titles match; also when none does."""
        if not wanted:
            told = ""
        elif self._found:
            told = f"{len(self._found)} found, ↑ ↓ go through them"
        else:
            told = "no lesson has that in its title"
        self.query_one(TitleBar).say("INFERENCE TUTOR", told or self._where())

    def on_input_submitted(self) -> None:
        self.action_end_search()

    def on_search_bar_moved(self, event: object) -> None:
        step = getattr(event, "step", 0)
        if self._found:
            at = self._found.index(self.map.marked) if self.map.marked in self._found else 0
            self.map.mark(self._found[(at + step) % len(self._found)])
