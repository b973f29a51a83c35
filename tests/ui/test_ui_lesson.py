"""A lesson's sections, its questions, and what of it goes into the journal."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
from textual.widgets import Input

from tutor.curriculum.loader import read_quiz
from tutor.curriculum.quiz import instantiate
from tutor.journal.events import ExerciseChecked, LabRun, LessonOpened, PredictionMade, SectionReached
from tutor.ui.app import TutorApp
from tutor.ui.quiz import QuizPane
from tutor.ui.screens.lesson import LessonScreen
from tutor.ui.screens.predict import PredictScreen
from tutor.ui.services import Services
from tutor.ui.widgets.question import ChoiceRow, QuestionBox

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]


def lesson_app(services: Services, lesson: str = "request", *, test: bool = False) -> TutorApp:
    return TutorApp(services, first=lambda: LessonScreen(services, services.course[lesson], test=test))


def events(services: Services, kind: type) -> list[object]:
    return [event for event in services.journal.read().events if isinstance(event, kind)]


def asked(app: TutorApp) -> object:
    return app.screen.query_one(QuizPane)._asked


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
async def test_all_sections_by_keyboard(
    services: Services, text: Text, until: Until, size: tuple[int, int]
) -> None:
    app = lesson_app(services)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "What happens after Enter" in text(app))
        for word in ("Question 1 of", "WHAT TO WATCH", "Now build it", "Six steps:"):
            await pilot.press("n")
            await until(pilot, lambda word=word: word in text(app))
        await pilot.press("b")
        await until(pilot, lambda: "Now build it" in text(app))
    reached = [event.section for event in events(services, SectionReached)]  # type: ignore[attr-defined]
    assert reached == ["Read", "Predict", "Lab", "Exercise", "Recap"]
    assert len(events(services, LessonOpened)) == 1


async def test_the_bar_tells_what_is_done_from_what_was_passed_by(
    services: Services, text: Text, until: Until
) -> None:
    app = lesson_app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        for word in ("What happens after Enter", "Question 1 of", "WHAT TO WATCH", "Now build it"):
            await until(pilot, lambda word=word: word in text(app))
            await pilot.press("n")
        bar = "✓ Read ── ◇ Predict ── ◇ Lab ── ◇ Exercise ── ▸ Recap"
        await until(pilot, lambda: bar in text(app))
        screen = app.screen
        assert isinstance(screen, LessonScreen)
        for question in screen._asked_here:
            answer = {"answer": "0", "expected": "1", "correct": False}
            services.record(PredictionMade(lesson="request", question=question.id, **answer))  # type: ignore[arg-type]
        services.record(LabRun(lesson="request", kind="request", steps=3))
        services.record(ExerciseChecked(exercise="request", lesson="request", passed=True))
        await pilot.press("b")
        await until(pilot, lambda: "✓ Predict ── ✓ Lab ── ▸ Exercise ── ✓ Recap" in text(app))
        await pilot.press("b")
        await until(pilot, lambda: "▸ Lab ── ✓ Exercise" in text(app))


async def test_space_turns_a_page(services: Services, text: Text, until: Until) -> None:
    app = lesson_app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "What happens after Enter" in text(app))
        pane = app.screen.query_one("#section-read")
        await until(pilot, lambda: pane.max_scroll_y > 40)
        await pilot.press("space")
        await until(pilot, lambda: pane.scroll_offset.y == pane.scrollable_content_region.height)


async def test_the_exercise_names_its_other_language(services: Services, text: Text, until: Until) -> None:
    app = lesson_app(services, "run-local")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "A server on your own machine" in text(app))
        for word in ("Question 1 of", "WHAT TO WATCH", "In TypeScript: tutor start run-local --language"):
            await pilot.press("n")
            await until(pilot, lambda word=word: word in text(app))


async def test_a_click_on_the_bar_goes_there(services: Services, text: Text, until: Until) -> None:
    app = lesson_app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Lab" in text(app))
        x = text(app).splitlines()[1].index("Lab")
        await pilot.click(offset=(x, 1))
        await until(pilot, lambda: "WHAT TO WATCH" in text(app))


async def test_wrong_number_is_explained_and_asked_again_with_fresh_numbers(
    services: Services, text: Text, until: Until
) -> None:
    app = lesson_app(services, "kv-math", test=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Question 1 of" in text(app))
        before = asked(app)
        await pilot.press(*"3", "enter")
        await until(pilot, lambda: "Not this time" in text(app))
        assert before.explain.split()[0] in text(app)  # type: ignore[attr-defined]
        await pilot.press("a")
        await until(pilot, lambda: "Type your prediction" in text(app))
        assert asked(app) is not before
        answer = asked(app).expected  # type: ignore[attr-defined]
        await pilot.press(*repr(answer), "enter")
        await until(pilot, lambda: "Right:" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Question 2 of" in text(app))
    made = events(services, PredictionMade)
    assert [event.correct for event in made] == [False, True]  # type: ignore[attr-defined]


async def test_a_unit_may_follow_a_number_and_letters_before_it_are_keys(
    services: Services, text: Text, until: Until
) -> None:
    app = lesson_app(services, test=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Question 1 of" in text(app))
        await pilot.press("z", "4", "2", "space", *"min", "b")
        assert app.screen.query_one(Input).value == "42 minb"  # n and b did not leave the question
        await pilot.press(*["backspace"] * 7, "n")
        await until(pilot, lambda: "Now build it" in text(app))


async def to_choice(app: TutorApp, pilot: object, until: Until) -> QuestionBox:
    """Go through the questions up to the first with choices."""
    while True:
        await until(pilot, lambda: app.screen.query(QuestionBox) and asked(app) is not None)
        box = app.screen.query_one(QuestionBox)
        if box.query(ChoiceRow):
            return box
        await pilot.press("1", "enter")  # type: ignore[attr-defined]
        await until(pilot, lambda box=box: box.scored)
        await pilot.press("enter")  # type: ignore[attr-defined]
        await until(pilot, lambda box=box: not box.is_attached)


async def test_enter_goes_on_after_the_last_question(services: Services, text: Text, until: Until) -> None:
    app = lesson_app(services, test=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Question 1 of" in text(app))
        for _ in app.screen.query_one(QuizPane)._questions:
            await until(pilot, lambda: app.screen.query(QuestionBox))
            box = app.screen.query_one(QuestionBox)
            await pilot.press("1", "enter")
            await until(pilot, lambda box=box: box.scored)
            await pilot.press("enter")
            await until(pilot, lambda box=box: not box.is_attached)
        await until(pilot, lambda: "Enter goes to the exercise." in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Now build it" in text(app))


async def test_choice_by_number_key(services: Services, text: Text, until: Until) -> None:
    app = lesson_app(services, test=True)
    async with app.run_test(size=(80, 24)) as pilot:
        box = await to_choice(app, pilot, until)
        right = int(asked(app).expected)  # type: ignore[attr-defined]
        await pilot.press(str(right + 1), "enter")
        await until(pilot, lambda: box.scored)
        assert "✓ Right" in text(app) or app.screen.query_one(QuizPane).max_scroll_y


async def test_choice_by_mouse(services: Services, text: Text, until: Until) -> None:
    app = lesson_app(services, test=True)
    async with app.run_test(size=(120, 40)) as pilot:
        box = await to_choice(app, pilot, until)
        wrong = (int(asked(app).expected) + 1) % len(box.query(ChoiceRow))  # type: ignore[attr-defined]
        await pilot.click(list(box.query(ChoiceRow))[wrong])
        await pilot.press("enter")
        await until(pilot, lambda: "Not this time" in text(app))
        assert not events(services, PredictionMade)[-1].correct  # type: ignore[attr-defined]


async def test_lab_asks_for_the_prediction_first_and_only_once(
    services: Services, text: Text, until: Until
) -> None:
    app = lesson_app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "What happens" in text(app))
        await app.screen.go("lab")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, PredictScreen))
        await until(pilot, lambda: "Predict, then watch" in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LessonScreen))
    lesson = services.course["request"]
    for question in read_quiz(lesson):
        scored = instantiate(question, random.Random(1)).score(0 if question.kind == "choice" else 1.0)
        services.record(
            PredictionMade(
                lesson="request", question=question.id, answer=scored.answer,
                expected=scored.expected, correct=scored.correct,
            )
        )  # fmt: skip
    screen = LessonScreen(services, lesson)
    assert screen._unanswered == ()


async def test_long_lines_of_lesson_text_stay_at_a_readable_measure(
    services: Services, text: Text, until: Until
) -> None:
    app = lesson_app(services)
    async with app.run_test(size=(160, 40)) as pilot:
        await until(pilot, lambda: "What happens after Enter" in text(app))
        body = [line.strip() for line in text(app).splitlines()[2:-1]]
        assert max(len(line.rstrip("▁▂▃▄▅▆▇█ ")) for line in body) <= 82


async def test_a_broken_lesson_is_one_sentence(services: Services, text: Text, until: Until) -> None:
    from msgspec.structs import replace

    folder = services.journal.folder.parent / "99-broken"
    folder.mkdir()
    (folder / "lesson.md").write_text("## One\n\n{{ nothing_of_this_name }}\n\n## Recap\n")
    broken = replace(services.course["request"], folder=folder)
    app = TutorApp(services, first=lambda: LessonScreen(services, broken))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "cannot be shown whole" in text(app))
        assert "lesson.md" in text(app)
