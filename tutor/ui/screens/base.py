"""What every screen has: a title line, a key line, help, and one sentence when it is too small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.css.query import NoMatches
from textual.messages import Prune
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from tutor.journal.events import AnyEvent
from tutor.ui.services import Services

MIN_WIDTH, MIN_HEIGHT = 60, 16

Help = tuple[tuple[str, str], ...]  # (keys, what they do)


class TooSmall(Static):
    """Stands in for the whole screen in a terminal that cannot hold it."""

    def __init__(self) -> None:
        need = f"The tutor needs {MIN_WIDTH} columns and {MIN_HEIGHT} rows: enlarge it."
        super().__init__(f"This terminal is too small. {need}", markup=False)


class TitleBar(Widget):
    """One line: what this is on the left, where one stands on the right."""

    def __init__(self, left: str, right: str = "") -> None:
        super().__init__()
        self._left = left
        self._right = right

    def say(self, left: str, right: str = "") -> None:
        if (left, right) != (self._left, self._right):
            self._left, self._right = left, right
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        right = Content.styled(self._right, "$secondary").truncate(max(0, width - 10), ellipsis=True)
        room = width - right.cell_length - 2 * bool(self._right)
        left = Content.styled(self._left, "bold").truncate(max(0, room), ellipsis=True)
        return Content.assemble(left, " " * max(0, width - left.cell_length - right.cell_length), right)


class KeyBar(Widget):
    """The keys that matter most here; each can be clicked. `keys`: (key, what, action)."""

    def __init__(self, keys: Iterable[tuple[str, str, str]]) -> None:
        super().__init__()
        self._keys = tuple(keys)

    def show(self, keys: Iterable[tuple[str, str, str]]) -> None:
        if self._keys != tuple(keys):
            self._keys = tuple(keys)
            self.refresh()

    def render(self) -> Content:
        parts: list[Content] = []
        for key, what, action in self._keys:
            piece = Content.assemble((key, "bold $foreground"), f" {what}")
            parts.append(piece.stylize(f"@click={action}") if action else piece)
            parts.append(Content("   "))
        return Content.assemble(*parts[:-1])


class TutorScreen(Screen[None]):
    """Base of the full screens. `ALL_KEYS` lists all keys for the `?` overlay."""

    HELP_TITLE: ClassVar[str] = ""
    ALL_KEYS: ClassVar[Help] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", show=False),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services = services

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield from self.body()

    def body(self) -> ComposeResult:
        """The widgets of this screen."""
        raise NotImplementedError

    @on(Prune)
    def _end_workers(self) -> None:
        """This screen goes: end its workers while its widgets are still there. Textual itself ends them
        after the widgets, and one that resumes in between would look for what is gone."""
        self.workers.cancel_node(self)

    def action_help(self) -> None:
        from tutor.ui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.HELP_TITLE, self.ALL_KEYS))

    def action_back(self) -> None:
        """Leave this screen; the first screen of the app stays."""
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        else:
            self.app.exit(0)

    def keep_work(self) -> str:
        """The app is about to end: keep what is not kept yet. Returns the reason when that is impossible."""
        return ""

    def record(self, event: AnyEvent) -> None:
        """Journal the event; a problem becomes one sentence on the screen, once a screen."""
        problem = self.services.record(event)
        if problem and problem not in self.services.problems:
            self.services.problems.append(problem)
            self.say(problem, bad=True)

    def say(self, sentence: str, *, bad: bool = False) -> None:
        """A sentence that goes away by itself, or when the next one comes: two would cover the screen."""
        self.app.clear_notifications()
        self.notify(sentence, severity="warning" if bad else "information", markup=False, timeout=8)

    def has(self, selector: str) -> bool:
        try:
            self.query_one(selector)
        except NoMatches:
            return False
        return True
