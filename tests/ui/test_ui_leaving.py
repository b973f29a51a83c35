"""A screen that goes: its workers end before its widgets do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from tutor.ui.app import TutorApp
from tutor.ui.screens.base import TutorScreen
from tutor.ui.services import Services


class Restless(TutorScreen):
    """Looks for its widget at every turn of the loop: from a worker, and from a task that a worker awaits
    (as the watcher of an exercise's file does)."""

    looks = 0

    def body(self) -> ComposeResult:
        with Vertical():
            yield Static("here", id="wanted")

    def on_mount(self) -> None:
        self._look()
        self._look_from_a_task()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.query_one("#wanted")
            self.looks += 1

    @work(group="one")
    async def _look(self) -> None:
        await self._look_on()

    @work(group="two")
    async def _look_from_a_task(self) -> None:
        task = asyncio.create_task(self._look_on())
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)


@pytest.mark.parametrize("by", ["quitting", "going back"])
async def test_no_worker_outlives_the_widgets_of_its_screen(
    services: Services, until: Callable[..., Awaitable[None]], by: str
) -> None:
    app = TutorApp(services)
    async with app.run_test() as pilot:
        screen = Restless(services)
        await app.push_screen(screen)
        await until(pilot, lambda: screen.looks > 0)
        if by == "going back":
            await app.pop_screen()
            assert not screen.is_running and not list(app.workers)
