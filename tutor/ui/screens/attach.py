"""A running server, watched by its own metrics."""

from __future__ import annotations

import asyncio
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
from tutor.ui.widgets.server import LatencyPanel, LoadPanel, ServerPanel, SlotsPanel

TIMEOUT = 5.0
FASTEST, SLOWEST = 0.25, 16.0
KEYS = (
    ("Space", "pause", "screen.pause"),
    ("< >", "poll rate", ""),
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
    ) -> None:
        super().__init__(services)
        self._url = url
        self._api_key = api_key
        self._interval = interval
        self._window = window
        self._paused = False
        self._due = asyncio.Event()
        self._view = ServerView(url=url)

    def body(self) -> ComposeResult:
        yield TitleBar(f"ATTACH  {self._url}")
        yield Static(id="server", markup=False)
        self._panels: tuple[ServerPanel, ...] = (
            LoadPanel("load"),
            LatencyPanel("latency"),
            SlotsPanel("slots"),
        )
        with Vertical(id="panels"):
            yield from self._panels
        yield Static(id="missing", markup=False)
        yield KeyBar(KEYS)

    def on_mount(self) -> None:
        self._panels[0].focus()
        self._show(self._view)
        self.run_worker(self._poll_forever(), exclusive=True)

    async def _poll_forever(self) -> None:
        """Polls until the screen goes. A slow server is asked again only after it has answered."""
        async with make_client(self._url, self._api_key, TIMEOUT) as client:
            watcher = Watcher(client, self._url, self._window)
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
        mark, word = PROVENANCE["measured"]
        title = " ".join(("ATTACH ", view.name or "…", view.version))
        self.query_one(TitleBar).say(title, f"{mark} {word} by the server itself" if view.points else "")
        self.query_one("#server", Static).update(self._status(view))
        self.query_one("#slots").display = view.kind == "llama-server"
        for panel in self._panels:
            panel.show(view)
        missing = f"Not reported by this server: {', '.join(view.missing)}." if view.missing else ""
        self.query_one("#missing", Static).update(missing)
        self.query_one("#missing").display = bool(missing)

    def _status(self, view: ServerView) -> Content:
        model = view.model.rsplit("/", 1)[-1]
        parts = [part for part in (view.url, model, *view.facts) if part]
        if view.num_restarts:
            parts.append(
                "restarted once" if view.num_restarts == 1 else f"restarted {view.num_restarts} times"
            )
        parts.append("paused" if self._paused else f"polled every {self._interval:g} s")
        line = Content.styled("  ".join(parts), "$secondary")
        if not view.problem:
            return line
        old = f" The figures are {view.age:.0f} s old." if view.status == "silent" else ""
        waiting = " Waiting for it." if view.status == "starting" else ""
        return Content("\n").join([line, Content.styled(view.problem + old + waiting, "bold $warning")])
