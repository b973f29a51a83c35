"""The map: what it shows, how one walks on it, and what stands in the way of a lesson."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tutor.cli.main import cli
from tutor.curriculum.loader import load_course
from tutor.journal.events import ExerciseChecked, LessonOpened
from tutor.ui.app import TutorApp
from tutor.ui.screens.lesson import LessonScreen
from tutor.ui.services import Services
from tutor.ui.widgets.course_map import CourseMap

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]


def the_map(app: TutorApp) -> CourseMap:
    return app.screen.query_one(CourseMap)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 16), (200, 60)])
async def test_first_screen(app: TutorApp, text: Text, size: tuple[int, int]) -> None:
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        shown = text(app)
        assert "Anatomy of an" in shown and "◆ ready" in shown and "STAGE 1" in shown
        assert "q quit" in shown
        assert "0 of " in shown
        assert "Arrow keys walk" in shown
        assert ("YOU WILL" in shown) == (size[0] >= 110)
        assert "Start reading: press Enter." in shown


async def test_too_small_says_one_sentence_and_recovers(app: TutorApp, text: Text) -> None:
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        assert "too small" in text(app) and "60 columns and 16 rows" in " ".join(text(app).split())
        assert "STAGE" not in text(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "STAGE 1" in text(app) and "too small" not in text(app)
        await pilot.resize_terminal(80, 15)
        await pilot.pause()
        assert "too small" in text(app)


@pytest.mark.parametrize("size", [(80, 24), (60, 16), (109, 30)])
async def test_the_strip_of_every_lesson_fits(
    app: TutorApp, text: Text, until: Until, size: tuple[int, int]
) -> None:
    """Nothing is cut by the screen: every row that was made stands there whole."""
    course, room = load_course(), size[0] - 2
    async with app.run_test(size=size) as pilot:
        strip = app.screen.query_one("#strip")
        for lesson in course:
            the_map(app).mark(lesson.id)
            await until(pilot, lambda title=lesson.title: str(strip.render()).startswith(title))
            rows = str(strip.render()).splitlines()
            assert len(rows) <= strip.size.height == 4 and max(map(len, rows)) <= room, rows
            assert all(row in text(app) for row in rows)
            assert rows[0].startswith(lesson.title)
            told = " ".join(rows)
            if size[0] >= 80 and lesson.unlocks:
                assert re.search(rf"unlocks ({lesson.unlocks[0]}|{len(lesson.unlocks)})\b", rows[0]), rows[0]
            if size[0] >= 80 and len(lesson.line) < room:
                assert lesson.line in told
        the_map(app).mark("kv-math")
        await pilot.pause()
        if size == (80, 24):
            assert "needs kv-cache · unlocks gqa, paged +1" in text(app)
        await pilot.resize_terminal(100, 24)
        await pilot.pause()
        assert "needs kv-cache · unlocks gqa, paged, cost" in text(app), "a resize makes it anew"


async def test_the_map_and_the_command_line_count_alike(app: TutorApp, text: Text, folders: Path) -> None:
    async with app.run_test(size=(60, 16)) as pilot:
        await pilot.pause()
        title = text(app).splitlines()[0]
    said = CliRunner().invoke(cli, ["progress"]).stdout.splitlines()[0]
    assert title.split("  ", 1)[0].strip() == "INFERENCE TUTOR"
    assert f"{title.split('TUTOR')[1].strip()}." == said
    assert re.fullmatch(r"0 of \d+ lessons done, \d+ written so far\.", said)


async def test_arrows_walk_along_the_graph(app: TutorApp, text: Text) -> None:
    course = load_course()
    async with app.run_test(size=(80, 24)) as pilot:
        here = the_map(app).marked
        assert here == "request"
        await pilot.press("right")
        assert the_map(app).marked in course[here].unlocks
        await pilot.press("left")
        assert the_map(app).marked in course["sampling"].needs
        await pilot.press("home", "down")
        assert course[the_map(app).marked].stage == 1 and the_map(app).marked != "request"
        await pilot.press("end")
        assert course[the_map(app).marked].stage == 9
        await pilot.pause()
        assert course[the_map(app).marked].title.split()[0] in text(app)
        assert "STAGE 9" in text(app)


async def test_every_lesson_can_be_reached_by_arrows(app: TutorApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        seen, open_ids = {"request"}, ["request"]
        while open_ids:
            start = open_ids.pop()
            for way in ("left", "right", "up", "down"):
                the_map(app).mark(start)
                the_map(app).action_walk(way)
                if the_map(app).marked not in seen:
                    seen.add(the_map(app).marked)
                    open_ids.append(the_map(app).marked)
        missing = {lesson.id for lesson in load_course()} - seen
        assert not missing


async def test_the_path_to_the_marked_lesson_is_heavy(app: TutorApp, text: Text) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "┏━ ◆ ready" in text(app)
        assert "┣━" not in text(app).replace("┣━┓", "")  # a root has no path
        await pilot.press("right")
        await pilot.pause()
        assert "┏━ ○ not written" in text(app) or "┏━ · locked" in text(app)
        assert text(app).count("┫") >= 1 and text(app).count("┣") >= 3


async def test_search(app: TutorApp, text: Text) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"paged")
        await pilot.pause()
        assert the_map(app).marked in ("paged", "allocator")
        first = the_map(app).marked
        await pilot.press("down")
        assert the_map(app).marked != first
        await pilot.press("enter")
        await pilot.pause()
        assert app.focused is the_map(app)
        assert the_map(app).marked != "request"
        await pilot.press("slash", "z", "z")
        await pilot.pause()
        assert "no lesson has that in its title" in text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.focused is the_map(app) and "lessons done" in text(app)


async def test_mouse_marks_then_opens(app: TutorApp, until: Until) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        box = the_map(app)._layout_now.boxes["tokens"]
        place = (box.x + 3, box.y + 1 + 1)
        await pilot.click(CourseMap, offset=place)
        assert the_map(app).marked == "tokens"
        await pilot.click(CourseMap, offset=place)
        await until(pilot, lambda: isinstance(app.screen, LessonScreen))
        assert app.screen.lesson.id == "tokens"  # type: ignore[attr-defined]


async def test_help_lists_the_keys(app: TutorApp, text: Text) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert "Keys: the map" in text(app) and "walk along the lessons" in text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "Keys: the map" not in text(app)


async def test_unwritten_lesson_says_so(app: TutorApp, text: Text) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("end", "enter")
        await pilot.pause()
        assert "Not written yet" in text(app) and "What it will teach you" in text(app)
        await pilot.press("T")  # nothing to test
        await pilot.pause()
        assert "Not written yet" in text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert app.services.states[the_map(app).marked].status == "ready"


async def test_locked_lesson_says_what_it_needs_and_can_be_tested_out(
    app: TutorApp, text: Text, until: Until
) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        the_map(app).mark("kv-cache")
        await pilot.press("enter")
        await pilot.pause()
        assert "Locked" in text(app) and "The transformer forward pass" in text(app)
        await pilot.press("T")
        await until(pilot, lambda: isinstance(app.screen, LessonScreen))
        await until(pilot, lambda: "Question 1 of" in text(app))
        assert "Predict" in text(app) and "Read" not in text(app).splitlines()[1]


async def test_states_follow_the_journal(make_services: Callable[..., Services], text: Text) -> None:
    services = make_services()
    services.record(LessonOpened(lesson="tokens"))
    services.record(ExerciseChecked(exercise="forward", lesson="forward", passed=True))
    again = TutorApp(make_services())
    async with again.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = text(again)
        assert "✓ done" in shown and "◇ in progress" in shown
        assert "1 of " in shown
        assert "Arrow keys walk" not in shown
        assert the_map(again).marked == "tokens"
        assert again.services.states["attention"].status == "ready"


async def test_ascii_mode_is_all_ascii(services: Services, text: Text) -> None:
    app = TutorApp(services, ascii_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("right")
        await pilot.pause()
        assert text(app).isascii()
        assert "#= - not written" in text(app) or "#= . locked" in text(app)
        await pilot.press("question_mark")
        await pilot.pause()
        assert text(app).isascii()


async def test_no_color_has_no_colors(
    make_services: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = TutorApp(make_services())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("right")
        await pilot.pause()
        (line_filter,) = app.get_line_filters()
        bold = 0
        for strip in app.screen._compositor.render_strips():
            for segment in strip.apply_filter(line_filter, app.screen.background_colors[1]):
                style = segment.style
                assert style is None or (style.color is None or style.color.is_default)
                assert style is None or (style.bgcolor is None or style.bgcolor.is_default)
                bold += bool(style and style.bold)
        assert bold  # what is marked still stands out


async def test_journal_of_a_newer_version_is_one_sentence(
    make_services: Callable[..., Services], folders: Path, text: Text
) -> None:
    (folders / "data").mkdir()
    (folders / "data" / "journal.jsonl").write_text('{"journal":"inference-tutor","schema":99}\n')
    app = TutorApp(make_services())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = " ".join(text(app).split())
        assert "newer tutor" in shown and "TUTOR_DATA" in shown
        await pilot.press("enter")  # reading works all the same
        await pilot.pause()
        assert isinstance(app.screen, LessonScreen)


async def test_q_quits_with_0(app: TutorApp) -> None:
    async with app.run_test() as pilot:
        await pilot.press("q")
    assert app.return_code == 0
