"""The session of `tutor watch`: one warm judge, the watcher, the keys, and the exercise at hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing

from tutor.cli.watch_keys import END_OF_INPUT
from tutor.cli.watch_standing import Standing
from tutor.cli.watch_view import View
from tutor.grading.changes import changes
from tutor.grading.client import JudgeClient
from tutor.grading.errors import GradingError
from tutor.grading.exercise import Exercise
from tutor.grading.messages import CheckStarted, Finished
from tutor.grading.verdict import Verdict
from tutor.grading.watching import Watcher
from tutor.grading.workspace import Workspace, header
from tutor.journal.events import ExerciseChecked, HintShown

_STARTS = re.compile(r"[-*] |\d+\. |\||#|```")  # of a list item, table, heading or code


class Session:
    """The exercise at hand is the one whose file was saved last, or the one that `n` went on to."""

    def __init__(
        self, standing: Standing, workspace: Workspace, judge: JudgeClient, view: View, first: Exercise
    ) -> None:
        self._standing = standing
        self._workspace = workspace
        self._judge = judge
        self._view = view
        self._current = workspace.latest(first)
        # by file name, so that each language of an exercise is watched
        self._items = {each.file: each for item in standing.exercises for each in item.all_languages()}
        self._watcher: Watcher[Verdict | GradingError] | None = None
        self._warned = ""
        self._keys: dict[str, Callable[[], None]] = {
            "h": self._hint,
            "r": self._run_again,
            "n": self._next,
            "l": self._list,
        }

    async def run(self, poll: bool) -> None:
        """Watch until cancelled. Raises JudgeError when the judge does not start."""
        await self._judge.start()
        paths = {name: self._workspace.path(item) for name, item in self._items.items()}
        self._watcher = Watcher(
            paths, self._grade, self._report, started=self._started, gone=self._gone, stop=self._judge.cancel
        )
        self._open(self._current)
        await self._watcher.run(changes(self._workspace.folder, poll))

    def press(self, key: str) -> bool:
        """One key; True when it ends the session. Others than those of the key line do nothing."""
        key = key.lower()
        if key in self._keys and self._watcher is not None:
            self._keys[key]()
        return key in ("q", END_OF_INPUT)

    def _open(self, item: Exercise) -> None:
        """Go to this exercise: its file is made if need be, and graded unless nobody has worked on it yet."""
        self._current = item
        self._show_standing()
        try:
            path, made = self._workspace.start(item)
            fresh = header(item) + item.starter.read_text("utf-8")
            untouched = made or self._workspace.read(item) == fresh
        except GradingError as error:
            self._view.opened(item, self._workspace.path(item), ())
            self._view.say(str(error), bad=True)
            return
        if made and self._watcher is not None:
            self._watcher.note(item.file, fresh.encode())
        task = [*_paragraphs(item.statement), "", *(f"    {line}" for line in item.signatures)]
        self._view.opened(item, path, task if untouched else ())
        if not untouched and self._watcher is not None:
            self._watcher.request(item.file)

    async def _grade(self, name: str) -> Verdict | GradingError:
        item = self._items[name]
        try:
            async with aclosing(self._judge.check(item.id, self._workspace.path(item))) as events:
                async for event in events:
                    if isinstance(event, CheckStarted) and item == self._current:
                        self._view.running(item, f": {event.index + 1} of {event.total}")
                    elif isinstance(event, Finished):
                        return event.verdict
        except GradingError as error:
            return error
        raise AssertionError("the judge's events end with a verdict or an error")

    def _started(self, name: str) -> None:
        item = self._items[name]
        if item != self._current:
            self._current = item
            self._view.opened(item, self._workspace.path(item), ())
        self._view.running(item, "")

    def _report(self, name: str, result: Verdict | GradingError) -> None:
        item = self._items[name]
        if isinstance(result, GradingError):
            self._view.say(f"Could not check {item.id}: {result}", bad=True)
            return
        self._standing.record(
            ExerciseChecked(
                exercise=item.id, lesson=item.lesson, passed=result.passed, failed_checks=result.failed_checks
            )
        )
        self._show_standing()
        if item == self._current:
            self._view.verdict(item, result)
        self._warn()

    def _gone(self, name: str) -> None:
        if name == self._current.file:
            path = self._workspace.path(self._current)
            self._view.say(f"{path.name} is gone. It is checked again as soon as it is back.", bad=True)

    def _hint(self) -> None:
        item, hints = self._current, self._current.hints
        opened = min(self._standing.of(item).hints, len(hints))
        if opened < len(hints):
            self._standing.record(HintShown(exercise=item.id, index=opened))
            opened += 1
        lines: list[str] = []
        for index in reversed(range(opened)):  # the new one on top, where it is seen
            lines += [*_paragraphs(f"Hint {index + 1} of {len(hints)}: {hints[index].strip()}"), ""]
        if opened == len(hints):
            lines.append(f"All hints are open. `tutor solution {item.id}` shows a solution.")
        self._view.page(lines)
        self._warn()

    def _run_again(self) -> None:
        if self._watcher is not None:
            self._watcher.request(self._current.file)

    def _next(self) -> None:
        following = self._standing.next(self._current)
        if following is not None:
            self._open(self._workspace.latest(following))
        elif self._standing.of(self._current).passed:
            self._view.say("All exercises are passed.")
        else:
            self._view.say(f"{self._current.id} is the only one left.")

    def _list(self) -> None:
        lines = []
        for item in self._standing.exercises:
            done = self._standing.of(item)
            state = "✓ passed" if done.passed else f"{done.attempts} tries" if done.attempts else ""
            here = ">" if item.id == self._current.id else " "
            lines.append(f"{here} {item.id:<14} {state:<10} {item.title}")
        self._view.page([*lines, "", "Save a file and its exercise is the one at hand; n goes to the next."])

    def _show_standing(self) -> None:
        following = self._standing.next(self._current)
        words = f"{following.id}, {following.title}" if following is not None else ""
        if not words and not self._standing.of(self._current).passed:
            words = self._current.id  # the only one that is left
        self._view.standing(self._standing.num_passed, len(self._standing.exercises), words)

    def _warn(self) -> None:
        """Say once what is wrong with the journal; the work goes on."""
        problem = self._standing.problem
        if problem and problem != self._warned:
            self._warned = problem
            self._view.say(problem, bad=True)


def _paragraphs(markdown: str) -> list[str]:
    """One line for each paragraph and list item, so that they can be wrapped to any width; code as it is."""
    lines: list[str] = []
    fenced = False
    for line in markdown.strip().splitlines():
        fenced ^= line.startswith("```")
        text = line.strip().replace("**", "")
        starts = not text or fenced or _STARTS.match(text)
        goes_on = lines and lines[-1] and not lines[-1].startswith(("```", "|", "#"))
        if starts or not goes_on or line.startswith("    "):
            lines.append(line.rstrip() if fenced else line.rstrip().replace("**", ""))
        else:
            lines[-1] += f" {text}"
    return lines
