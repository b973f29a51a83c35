"""The exercise screen with the real judge: checking, hints, and a file that others edit, too."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.events import AppFocus
from textual.widget import Widget
from textual.widgets import TextArea

from tutor.grading.exercise import find_exercise
from tutor.journal.events import ExerciseChecked, ExerciseReset, HintShown, SolutionShown
from tutor.ui.app import TutorApp
from tutor.ui.screens.choice import ChoiceScreen
from tutor.ui.screens.exercise import ExerciseScreen
from tutor.ui.screens.solution import SolutionScreen
from tutor.ui.services import Services

Text = Callable[[TutorApp], str]
Until = Callable[..., Awaitable[None]]
ID = "kv-math"


def exercise_app(services: Services) -> TutorApp:
    return TutorApp(services, first=lambda: ExerciseScreen(services, services.course[ID]))


def editor(app: TutorApp) -> TextArea:
    return app.screen.query_one("#editor", TextArea)


def journaled(services: Services, kind: type) -> list[object]:
    return [event for event in services.journal.read().events if isinstance(event, kind)]


def solution() -> str:
    return find_exercise(ID).solution.read_text(encoding="utf-8")


@pytest.fixture
def file(folders: Path) -> Path:
    return folders / "work" / find_exercise(ID).file


async def test_starter_fails_and_solution_passes(
    services: Services, text: Text, until: Until, file: Path
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app) and "Bytes of a KV cache" in text(app))
        assert file.read_text() == editor(app).text
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Not passed yet" in text(app))
        assert "✗" in text(app) and "kv_bytes" in text(app)
        editor(app).load_text(solution())
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Passed:" in text(app))
        assert file.read_text() == solution()
    passed = [event.passed for event in journaled(services, ExerciseChecked)]  # type: ignore[attr-defined]
    assert passed == [False, True]
    assert services.progress.exercise(ID).passed


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_first_opening_hides_nothing(
    services: Services, text: Text, until: Until, file: Path, size: tuple[int, int]
) -> None:
    """Where the file is stands above the task, whose first lines follow it; no message lies over them."""
    app = exercise_app(services)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: "Your file is" in text(app) and "kv_bytes" in text(app))
        assert not app.screen.query("Toast") and not app._notifications
        opening, task = app.screen.query_one("#opening"), app.screen.query_one("Markdown")
        assert opening.region.bottom <= task.region.y and "".join(str(file).split()) in _joined(opening)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not opening.display)


def _joined(widget: Widget) -> str:
    return "".join(str(widget.render()).split())


async def test_narrow_terminal_shows_one_pane_at_a_time(services: Services, text: Text, until: Until) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "F2 task" in text(app) and "kv_bytes" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "# inference-tutor: exercise kv-math" in text(app))
        await pilot.press("h")  # typed, not a hint
        assert editor(app).text.startswith("h")
        assert not journaled(services, HintShown)
        await pilot.press("backspace", "escape")
        await until(pilot, lambda: "h opens the next of" in text(app) or "hint" in text(app))
        await pilot.press("f5")
        await until(pilot, lambda: "Ctrl+S saves the file and checks it." in text(app))


async def test_syntax_error_is_a_sentence(services: Services, text: Text, until: Until) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        editor(app).load_text("def kv_bytes(:\n")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Not passed yet" in text(app))
        assert "SyntaxError" in text(app) or "syntax" in text(app)
        assert "Traceback" not in text(app)


async def test_a_run_can_be_stopped(services: Services, text: Text, until: Until) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        endless = "def kv_bytes(*a, **k):\n    while True:\n        pass\n\ndef max_seqs(*a):\n    return 0\n"
        editor(app).load_text(endless)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Checking: 1 of" in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Stopped. Ctrl+S checks again." in text(app))
        assert not journaled(services, ExerciseChecked)
        editor(app).load_text(solution())
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Passed:" in text(app))


async def test_hints_open_one_by_one_and_stay_open(
    services: Services, make_services: Callable[..., Services], text: Text, until: Until
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 70)) as pilot:
        await until(pilot, lambda: "h opens the next of 4 hints" in text(app))
        await pilot.press("h")
        await until(pilot, lambda: "Hint 1" in text(app) and "next of 3 hints" in text(app))
        assert "Hint 2" not in text(app)
    again = make_services()
    assert again.progress.exercise(ID).hints == 1


async def test_solution_needs_a_pass_or_a_confirmation(services: Services, text: Text, until: Until) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ExerciseScreen))
        assert not journaled(services, SolutionShown)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, SolutionScreen))
        await until(pilot, lambda: "One solution of many" in text(app))
        assert len(journaled(services, SolutionShown)) == 1


async def test_start_over_keeps_a_backup(services: Services, text: Text, until: Until, file: Path) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        starter = editor(app).text
        editor(app).load_text("mine = 1\n")
        await pilot.press("R")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("y")
        await until(pilot, lambda: journaled(services, ExerciseReset))
        assert editor(app).text == starter == file.read_text()
        assert [backup.read_text() for backup in file.parent.glob("*.bak")] == ["mine = 1\n"]


async def test_an_outside_edit_is_taken_when_focus_returns(
    services: Services, text: Text, until: Until, file: Path
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        file.write_text("edited = 'elsewhere'\n")
        app.screen.post_message(AppFocus())
        await until(pilot, lambda: "edited" in editor(app).text)


async def test_saving_in_another_editor_checks(
    services: Services, text: Text, until: Until, file: Path
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app) and "any other editor" in text(app))
        beside = file.with_suffix(".tmp")
        beside.write_text("def kv_bytes(:\n")
        beside.replace(file)
        await until(pilot, lambda: "Not passed yet" in text(app))
        assert editor(app).text == "def kv_bytes(:\n"
        file.write_text(solution())
        await until(pilot, lambda: "Passed:" in text(app))
        assert editor(app).text == solution()
    assert [event.passed for event in journaled(services, ExerciseChecked)] == [False, True]  # type: ignore[attr-defined]


async def test_a_save_during_a_run_is_checked_afterwards(
    services: Services, text: Text, until: Until, file: Path
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "any other editor" in text(app))
        endless = "def kv_bytes(*a, **k):\n    while True:\n        pass\n\nmax_seqs = kv_bytes\n"
        editor(app).load_text(endless)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Checking: 1 of" in text(app))
        file.write_text(solution())
        await until(pilot, lambda: "Passed:" in text(app))
        assert editor(app).text == solution()
    assert [event.passed for event in journaled(services, ExerciseChecked)] == [True]  # type: ignore[attr-defined]


async def test_an_outside_save_takes_nothing_from_unsaved_text(
    services: Services, text: Text, until: Until, file: Path
) -> None:
    """And no dialog comes up while somebody types."""
    app = exercise_app(services)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: "any other editor" in text(app))
        editor(app).load_text("mine = 1\n")
        file.write_text("theirs = 2\n")
        await until(pilot, lambda: "kv_math.py was saved by" in text(app))  # in the corner
        assert isinstance(app.screen, ExerciseScreen)
        assert editor(app).text == "mine = 1\n" and file.read_text() == "theirs = 2\n"
        assert not journaled(services, ExerciseChecked)


@pytest.mark.parametrize(("key", "kept"), [("m", "mine = 1\n"), ("f", "theirs = 2\n")])
async def test_two_edits_are_never_merged_unseen(
    services: Services, text: Text, until: Until, file: Path, key: str, kept: str
) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        editor(app).load_text("mine = 1\n")
        file.write_text("theirs = 2\n")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        assert file.read_text() == "theirs = 2\n"  # nothing is written before the answer
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ExerciseScreen))
        assert file.read_text() == "theirs = 2\n" and editor(app).text == "mine = 1\n"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press(key)
        await until(pilot, lambda: file.read_text() == kept and editor(app).text == kept)
        backups = [backup.read_text() for backup in file.parent.glob("*.bak")]
        assert backups == (["theirs = 2\n"] if key == "m" else [])


async def test_leaving_saves(services: Services, text: Text, until: Until, file: Path) -> None:
    app = exercise_app(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        editor(app).load_text("half = 'done'\n")
        await pilot.press("escape")
        await until(pilot, lambda: file.read_text() == "half = 'done'\n")


async def test_no_editor_is_a_sentence(
    services: Services, text: Text, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "no-such-editor-anywhere")
    monkeypatch.delenv("VISUAL", raising=False)
    app = exercise_app(services)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: "def kv_bytes" in text(app))
        await pilot.press("e")
        await until(pilot, lambda: "no-such-editor-anywhere was not found" in " ".join(text(app).split()))


async def test_a_workspace_that_is_a_file_is_a_sentence(
    services: Services, text: Text, until: Until, folders: Path
) -> None:
    (folders / "work").write_text("not a folder")
    app = exercise_app(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "TUTOR_WORKSPACE" in " ".join(text(app).split()))
        assert "Traceback" not in text(app)
        await pilot.press("question_mark")
        await until(pilot, lambda: "Keys: an exercise" in text(app))


async def test_a_full_disk_while_saving_is_a_sentence(
    services: Services, text: Text, until: Until, file: Path
) -> None:
    if os.geteuid() == 0:  # root may write everywhere: take the folder away instead
        app = exercise_app(services)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await until(pilot, lambda: "def kv_bytes" in text(app))
            before = file.read_text()
            file.rename(file.with_suffix(".kept"))
            file.parent.rename(file.parent.with_name("gone"))
            file.parent.write_text("in the way")
            editor(app).load_text("x = 1\n")
            await pilot.press("ctrl+s")
            await until(pilot, lambda: "Cannot write" in " ".join(text(app).split()))
            assert editor(app).text == "x = 1\n"
            assert (file.parent.with_name("gone") / "kv_math.kept").read_text() == before
    else:
        app = exercise_app(services)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await until(pilot, lambda: "def kv_bytes" in text(app))
            file.parent.chmod(0o500)
            editor(app).load_text("x = 1\n")
            await pilot.press("ctrl+s")
            await until(pilot, lambda: "Cannot write" in " ".join(text(app).split()))
            file.parent.chmod(0o700)
