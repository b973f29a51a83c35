"""From a failed check to its replay, as a learner does it: check, p, look, Esc."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import TextArea

from tutor.grading.client import Event, JudgeClient
from tutor.grading.exercise import find_exercise
from tutor.grading.messages import CheckDone
from tutor.ui.app import TutorApp
from tutor.ui.screens.exercise import ExerciseScreen
from tutor.ui.screens.lab import LabScreen
from tutor.ui.services import Services

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]
WRONG = "needed = self.tokens // self.block_size + 1"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_replay_opens_the_step_that_went_wrong(
    services: Services, text: Text, until: Until, size: tuple[int, int]
) -> None:
    app = TutorApp(services, first=lambda: ExerciseScreen(services, services.course["paged"]))
    solution = find_exercise("paged").solution.read_text(encoding="utf-8")
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "Your file is" in text(app))
        await pilot.press("p")
        await until(pilot, lambda: "No failed check left a recording" in text(app))
        wrong = solution.replace("needed = -(-self.tokens // self.block_size)", WRONG)
        app.screen.query_one("#editor", TextArea).load_text(wrong)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "p replays what your code did" in text(app))
        await pilot.press("f5", "p")
        await until(pilot, lambda: isinstance(app.screen, LabScreen) and "EXPECTED AND GOT" in text(app))
        await until(pilot, lambda: "blocks held" in text(app))
        shown = text(app)
        assert "✗" in shown and "≠" in shown and "append(" in shown
        assert "MEASURED paged.py" in shown and "llama.cpp" not in shown.splitlines()[0]
        await pilot.press("k")
        await until(pilot, lambda: "can be played, but not run again" in text(app))
        await pilot.press("comma")
        await until(pilot, lambda: "✗" not in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ExerciseScreen))


class HeldJudge(JudgeClient):
    """The real judge; what it says after a check that left a recording waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def check(self, exercise: str, path: Path, **options: Any) -> AsyncGenerator[Event, None]:
        async for event in super().check(exercise, path, **options):
            yield event
            if isinstance(event, CheckDone) and event.result.trace:
                await self.go.wait()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_recording_can_be_replayed_as_soon_as_its_check_says_so(
    make_services: Callable[..., Services], text: Text, until: Until, size: tuple[int, int]
) -> None:
    judge = HeldJudge()
    services = make_services(make_judge=lambda model: judge)
    app = TutorApp(services, first=lambda: ExerciseScreen(services, services.course["paged"]))
    solution = find_exercise("paged").solution.read_text(encoding="utf-8")
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "Your file is" in text(app))
        wrong = solution.replace("needed = -(-self.tokens // self.block_size)", WRONG)
        app.screen.query_one("#editor", TextArea).load_text(wrong)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "p replays what your code did" in text(app))
        assert "Checking:" in text(app)  # the other checks have not been heard of
        await pilot.press("f5", "p")
        await until(pilot, lambda: isinstance(app.screen, LabScreen) and "EXPECTED AND GOT" in text(app))
        judge.go.set()
        await pilot.press("escape")
        await until(pilot, lambda: "Not passed yet" in text(app))
