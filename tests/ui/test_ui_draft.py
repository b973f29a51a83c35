"""What is typed in the exercise editor survives Ctrl+C, the death of the app and a full disk."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from textual.widgets import TextArea

from tutor.grading.exercise import find_exercise
from tutor.ui.app import TutorApp
from tutor.ui.draft import Draft
from tutor.ui.screens import exercise_draft
from tutor.ui.screens.choice import ChoiceScreen
from tutor.ui.screens.exercise import ExerciseScreen
from tutor.ui.screens.map import MapScreen
from tutor.ui.services import Services

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]
Make = Callable[..., Services]
ID = "kv-math"
TYPED = "typed = 'not saved'\n"


def exercise_app(services: Services) -> TutorApp:
    return TutorApp(services, first=lambda: ExerciseScreen(services, services.course[ID]))


def editor(app: TutorApp) -> TextArea:
    return app.screen.query_one("#editor", TextArea)


@pytest.fixture
def file(folders: Path) -> Path:
    return folders / "work" / find_exercise(ID).file


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercise_draft, "KEEP_EVERY", 0.01)


@pytest.fixture
def no_room(folders: Path) -> Iterator[Callable[[Path], None]]:
    """Makes a folder that nobody can write to, root included: a file stands in its place."""

    def block(folder: Path) -> None:
        if folder.exists():
            folder.rename(folder.with_name(f"{folder.name}-gone"))
        folder.write_text("in the way")

    yield block


@pytest.mark.parametrize("key", ["ctrl+c", "ctrl+q"])
async def test_quitting_saves(services: Services, text: Text, until: Until, file: Path, key: str) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        editor(app).load_text(TYPED)
        await pilot.press(key)
        await until(pilot, lambda: app.return_code == 0)
    assert file.read_text() == TYPED
    assert Draft(file).read() is None


@pytest.mark.usefixtures("at_once")
async def test_a_killed_app_brings_the_text_back(
    make_services: Make, text: Text, until: Until, file: Path
) -> None:
    first = exercise_app(make_services())
    async with first.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(first))
        starter = file.read_text()
        editor(first).load_text(TYPED)
        await until(pilot, lambda: Draft(file).read() is not None)
    assert file.read_text() == starter  # leaving run_test is no way out of the app: nothing was saved
    second = exercise_app(make_services())
    async with second.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: editor(second).text == TYPED)
        await until(pilot, lambda: "What you typed last time" in text(second))
        await pilot.press("escape")
        await until(pilot, lambda: file.read_text() == TYPED)
        await until(pilot, lambda: Draft(file).read() is None)


async def test_a_draft_never_replaces_what_another_editor_saved_later(
    make_services: Make, text: Text, until: Until, file: Path
) -> None:
    file.parent.mkdir()
    file.write_text("old = 1\n")
    Draft(file).keep(TYPED, base="old = 1\n")
    file.write_text("newer = 2\n")
    app = exercise_app(make_services())
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: "kv_math.py.unsaved" in text(app))
        assert editor(app).text == file.read_text() == "newer = 2\n"
        assert (file.parent / "kv_math.py.unsaved").read_text() == TYPED
        assert Draft(file).read() is None


async def test_a_draft_that_cannot_be_read_is_no_draft(file: Path) -> None:
    draft = Draft(file)
    draft.keep(TYPED, base="")
    (stored,) = (Path(os.environ["TUTOR_DATA"]) / "drafts").iterdir()
    stored.write_bytes(stored.read_bytes()[:-3])
    assert draft.read() is None


async def test_a_full_disk_does_not_lock_the_learner_in(
    services: Services, text: Text, until: Until, file: Path, no_room: Callable[[Path], None]
) -> None:
    app = TutorApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app.push_screen(ExerciseScreen(services, services.course[ID]))
        await until(pilot, lambda: app.screen.query("#editor") and "kv_bytes" in text(app))
        no_room(file.parent)
        editor(app).load_text(TYPED)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        shown = " ".join(text(app).split())
        assert "Cannot write" in shown and "comes back" in shown
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ExerciseScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, MapScreen))
    kept = Draft(file).read()
    assert kept is not None and kept.text == TYPED


async def test_ctrl_c_asks_once_when_the_text_can_be_kept_nowhere(
    services: Services, text: Text, until: Until, file: Path, no_room: Callable[[Path], None]
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: file.exists() and "kv_bytes" in text(app))
        no_room(file.parent)
        no_room(Path(os.environ["TUTOR_DATA"]))
        editor(app).load_text(TYPED)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Ctrl+C again" in " ".join(text(app).split()))
        assert app.return_code is None and editor(app).text == TYPED
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.return_code == 0)
