"""A running server, watched by its own metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tutor.client.attach.views import ServerView
from tutor.client.attach.watcher import Watcher
from tutor.client.http import make_client
from tutor.ui.screens.base import Help, KeyBar, TitleBar, TutorScreen
from tutor.ui.services import Services
from tutor.ui.theme import PROVENANCE
from tutor.ui.widgets.panels.base import clip
from tutor.ui.widgets.server import EnginesPanel, LatencyPanel, LoadPanel, ServerPanel, SlotsPanel

TIMEOUT = 5.0
FASTEST, SLOWEST = 0.25, 16.0
KEYS = (
    ("Space", "pause", "screen.pause"),
    ("< >", "pace", ""),
    ("Tab", "next panel", ""),
    ("?", "help", "screen.help"),
    ("q", "quit", "app.leave"),
)


class AttachScreen(TutorScreen):
    """Polls the server at `url` every `interval` seconds; rates and percentiles cover `window` seconds."""

    CSS_PATH = ["attach.tcss", "../widgets/panels/panels.tcss"]  # noqa: RUF012 (Textual declares its type)
    HELP_TITLE = "a running server"
    ALL_KEYS: ClassVar[Help] = (
        ("Space", "stop polling, and go on"),
        ("<  >", "poll half as often, twice as often"),
        ("p", "poll now"),
        ("Tab", "next panel; arrow keys scroll it"),
        ("q", "quit"),
        ("▁▄█", "a poll each, the newest on the right, up to the highest shown"),
        ("over", "the time that a line's figures cover; all: since its start"),
        ("unknown", "this server does not tell it, or not after one poll"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", show=False),
        Binding("less_than_sign", "pace(2)", show=False),
        Binding("greater_than_sign", "pace(0.5)", show=False),
        Binding("p", "poll", show=False),
        Binding("q", "app.leave", show=False),
    ]

    def __init__(
        self,
        services: Services,
        url: str,
        *,
        api_key: str | None = None,
        interval: float = 1.0,
        window: float = 60.0,
        model: str = "",
    ) -> None:
        super().__init__(services)
        self._url = url
        self._api_key = api_key
        self._interval = interval
        self._window = window
        self._model = model
        self._paused = False
        self._due = asyncio.Event()
        self._view = ServerView(url=url)
        self._told: dict[Static, str] = {}

    def body(self) -> ComposeResult:
        self._title = TitleBar(f"ATTACH  {self._url}")
        yield self._title
        self._server = Static(id="server", markup=False)
        yield self._server
        self._panels: tuple[ServerPanel, ...] = (
            LoadPanel("load"),
            LatencyPanel("latency"),
            EnginesPanel("engines"),
            SlotsPanel("slots"),
        )
        with Vertical(id="panels"):
            yield from self._panels
        self._missing = Static(id="missing", markup=False)
        yield self._missing
        yield KeyBar(KEYS)

    def on_mount(self) -> None:
        self._panels[0].focus()
        self._show(self._view)
        self.run_worker(self._poll_forever(), exclusive=True)

    async def _poll_forever(self) -> None:
        """Polls until the screen goes. A slow server is asked again only after it has answered."""
        async with make_client(self._url, self._api_key, TIMEOUT) as client:
            watcher = Watcher(client, self._url, self._window, model=self._model)
            while True:
                self._show(await watcher.poll())
                self._due.clear()
                try:
                    async with asyncio.timeout(None if self._paused else self._interval):
                        await self._due.wait()
                except TimeoutError:
                    continue

    # --- keys -----------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._show(self._view)
        self._due.set()

    def action_pace(self, factor: float) -> None:
        self._interval = min(SLOWEST, max(FASTEST, self._interval * factor))
        self._show(self._view)

    def action_poll(self) -> None:
        self._due.set()

    # --- what is shown --------------------------------------------------------------------------

    def _show(self, view: ServerView) -> None:
        self._view = view
        if not self.is_mounted or not self._title.is_attached:  # an answer may come while the screen goes
            return
        mark, word = PROVENANCE["measured"]
        model = view.model.rsplit("/", 1)[-1]
        known = " ".join(part for part in (view.name or "…", view.version) if part)
        title = "  ".join(part for part in ("ATTACH", known, model) if part)
        self._title.say(title, f"{mark} {word} by the server itself" if view.points else "")
        self._tell(self._server, self._status(view))
        wanted = {"slots": view.kind == "llama-server", "engines": bool(view.engines)}
        for panel in self._panels:
            panel.display = wanted.get(panel.id or "", True)
            panel.show(view)
        missing = f"Not reported by this server: {', '.join(view.missing)}." if view.missing else ""
        self._tell(self._missing, Content(missing))
        self._missing.display = bool(missing)

    def _tell(self, widget: Static, content: Content) -> None:
        """Repaints only what changed: over a slow line every byte counts."""
        if self._told.get(widget) != content.plain:
            self._told[widget] = content.plain
            widget.update(content)

    def on_resize(self) -> None:
        self._show(self._view)

    def _status(self, view: ServerView) -> Content:
        """One line of what is watched, and below it what is wrong."""
        restarts = {0: "", 1: "restarted once"}.get(view.num_restarts, f"restarted {view.num_restarts} times")
        pace = "paused" if self._paused else f"polled every {self._interval:g} s"
        needed = [part for part in (restarts, pace) if part]
        line = Content.styled(fit(view.url, view.facts, needed, self.size.width - 2), "$secondary")
        if not view.problem:
            return line
        old = f" The figures are {view.age:.0f} s old." if view.status == "silent" else ""
        waiting = " Waiting for it." if view.status == "starting" else ""
        return Content("\n").join([line, Content.styled(view.problem + old + waiting, "bold $warning")])


def fit(url: str, facts: Sequence[str], needed: Sequence[str], width: int) -> str:
    """The parts on one line of `width`: facts are left out from the last on, then the address is cut."""
    for count in range(len(facts), -1, -1):
        line = "  ".join((url, *facts[:count], *needed))
        if len(line) <= width:
            return line
    rest = "  ".join(needed)
    return "  ".join((clip(url, max(8, width - len(rest) - 2)), rest))
