"""From a failed check to its replay, as a learner does it: check, p, look, Esc."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from textual.widgets import TextArea

from tutor.grading.exercise import find_exercise
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
