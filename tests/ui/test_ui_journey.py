"""The whole way of a learner: map, lesson, prediction, lab, exercise, done, unlocked; and still so tomorrow.

Everything is real: the judge, the lab's process, the journal on disk, keys as they are pressed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot
from textual.widgets import TextArea

from tutor.grading.exercise import find_exercise
from tutor.journal.events import LabRun
from tutor.ui.app import TutorApp
from tutor.ui.quiz import QuizPane
from tutor.ui.screens.exercise import ExerciseScreen
from tutor.ui.screens.lab import LabScreen
from tutor.ui.screens.lesson import LessonScreen
from tutor.ui.screens.map import MapScreen
from tutor.ui.services import Services
from tutor.ui.widgets.course_map import CourseMap
from tutor.ui.widgets.question import QuestionBox
from tutor.ui.widgets.verdict_list import VerdictList

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]


async def answer_all(app: TutorApp, pilot: Pilot[Any], until: Until) -> None:
    """Answer every question of the pane on the screen rightly, by keys."""
    pane = app.screen.query_one(QuizPane)
    while not pane.ended:
        await until(pilot, lambda: pane.query(QuestionBox) and pane._asked is not None)
        box = pane.query_one(QuestionBox)
        asked = pane._asked
        assert asked is not None
        typed = str(int(asked.expected) + 1) if asked.kind == "choice" else repr(asked.expected)
        await pilot.press(*typed, "enter")
        await until(pilot, lambda box=box: box.scored)
        await pilot.press("enter")
        await until(pilot, lambda box=box: not box.is_attached)


async def test_first_lesson_from_start_to_done(
    make_services: Callable[..., Services], text: Text, until: Until
) -> None:
    services = make_services()
    app = TutorApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "◆ ready" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "What happens after Enter" in text(app))

        await pilot.press("n")
        await until(pilot, lambda: "Question 1 of" in text(app))
        await answer_all(app, pilot, until)
        await until(pilot, lambda: "right. Enter goes on" in text(app))
        made = services.progress.lesson("request").predictions
        assert made and all(prediction.correct for prediction in made)

        await pilot.press("n")
        await until(pilot, lambda: "WHAT TO WATCH" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Predict, then watch" in text(app))
        await answer_all(app, pilot, until)
        await until(pilot, lambda: isinstance(app.screen, LabScreen) and "● MEASURED" in text(app))
        await until(pilot, lambda: "● decode" in text(app) or "✓ decode" in text(app))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "1 stages" in text(app))
        await pilot.resize_terminal(120, 40)
        await pilot.press("escape")
        await until(pilot, lambda: "You have run it 1 time." in text(app))

        await pilot.press("n", "enter")
        await until(pilot, lambda: isinstance(app.screen, ExerciseScreen) and "def generate" in text(app))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Not passed yet" in text(app))
        assert "generate is not written yet" in " ".join(text(app).split())
        editor = app.screen.query_one("#editor", TextArea)
        editor.load_text(find_exercise("request").solution.read_text(encoding="utf-8"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Passed:" in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LessonScreen) and "Six steps:" in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MapScreen) and "✓ done" in text(app))
        assert "1 of " in text(app)
        await pilot.press("q")
    assert app.return_code == 0

    again = TutorApp(make_services())
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "✓ done" in text(again) and "1 of " in text(again))
        assert again.screen.query_one(CourseMap).marked != "request"  # the next open lesson is marked
    assert [event.kind for event in again.services.journal.read().events if isinstance(event, LabRun)] == [
        "request"
    ]


async def test_a_pass_says_what_it_opens(
    make_services: Callable[..., Services], text: Text, until: Until
) -> None:
    """kv-math waits for kv-cache: passing kv-cache's exercise opens it, on the screen and on the map."""
    from tutor.journal.events import ExerciseChecked

    services = make_services()
    services.record(ExerciseChecked(exercise="forward", lesson="forward", passed=True))
    assert services.states["kv-math"].status == "locked"
    app = TutorApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "◆ ready" in text(app))
        app.push_screen(ExerciseScreen(services, services.course["kv-cache"]))
        await until(pilot, lambda: isinstance(app.screen, ExerciseScreen) and app.screen.query("#editor"))
        editor = app.screen.query_one("#editor", TextArea)
        editor.load_text(find_exercise("kv-cache").solution.read_text(encoding="utf-8"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Passed:" in text(app), 60.0)
        assert "This opens KV cache size math" in str(app.screen.query_one(VerdictList).content)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MapScreen))
        assert services.states["kv-math"].status == "ready"
