"""The full-screen tutor. The App holds the services and nothing else; screens own their state."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from tutor.ui.screens.base import TutorScreen
from tutor.ui.screens.map import MapScreen
from tutor.ui.theme import TUTOR_THEME, AsciiFilter, no_color

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.filter import LineFilter
    from textual.screen import Screen

    from tutor.ui.services import Services


class TutorApp(App[int]):
    """Screens on a stack, the map at the bottom; `first` makes another screen to start on."""

    TITLE = "inference tutor"
    # the map's styles are read with the app's own: a second parse would show in the start-up time
    CSS_PATH = ["app.tcss", "screens/map.tcss", "widgets/course_map.tcss"]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 (Textual declares its type)
        (0, "-tiny-width"),
        (60, "-narrow"),
        (110, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-tiny-height"),
        (16, "-short"),
        (32, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", "Quit", show=False),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False),
    ]

    def __init__(
        self,
        services: Services,
        *,
        ascii_only: bool = False,
        first: Callable[[], Screen[None]] | None = None,
    ) -> None:
        # With native colours Textual's NO_COLOR filter drops them all instead of turning them grey
        super().__init__(ansi_color=True if no_color() else None)
        self.services = services
        self.ascii_only = ascii_only
        self._first = first
        self._warned = False  # text that cannot be kept was mentioned
        self._ascii = AsciiFilter()
        self.register_theme(TUTOR_THEME)
        self.theme = TUTOR_THEME.name
        self.set_class(ascii_only, "-ascii")

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._ascii] if self.ascii_only else filters

    def get_default_screen(self) -> Screen[None]:
        """The bottom of the stack; the map, unless the app was opened on a lab."""
        if self._first is None:
            return MapScreen(self.services)
        screen = self._first()
        self._load_screen_css(screen)  # Textual does this for pushed screens only
        return screen

    def on_ready(self) -> None:
        """The first paint is done: collect garbage from now on, but never look at what start-up made."""
        gc.freeze()
        gc.enable()

    def on_mount(self) -> None:
        """After `fg` the terminal is empty: paint all of the screen again."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))

    async def on_unmount(self) -> None:
        await self.services.close()

    def action_leave(self) -> None:
        """End the app with everything kept. Where that is impossible, say why once first."""
        for screen in reversed(self.screen_stack):
            problem = screen.keep_work() if isinstance(screen, TutorScreen) else ""
            if problem and not self._warned:
                self._warned = True
                screen.notify(f"{problem} Ctrl+C again quits without it.", severity="warning", markup=False)
                return
        self.exit(0)

    async def action_quit(self) -> None:
        """Textual's own Ctrl+Q: the same way out."""
        self.action_leave()
