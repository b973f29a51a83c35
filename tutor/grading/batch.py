"""Many submissions, one judge: each is graded by itself, and none stops the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from tutor.grading.client import DEFAULT_SEED, JudgeClient
from tutor.grading.errors import GradingError
from tutor.grading.exercise import Exercise
from tutor.grading.messages import CheckDone, Finished
from tutor.grading.verdict import CheckResult, Verdict


class Submission(NamedTuple):
    """One file to grade. `workspace` names whose it is, `folder` is where that one keeps its files."""

    exercise: Exercise
    path: Path
    workspace: str
    folder: Path


class Graded(NamedTuple):
    """What came of a submission: a verdict, or the sentence why there is none ("" for: no file was there)."""

    submission: Submission
    verdict: Verdict | None
    problem: str = ""

    @property
    def missing(self) -> bool:
        return self.verdict is None and not self.problem

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed


class Watcher:
    """Told what happens, in order; the methods of this one do nothing."""

    def begins(self, submission: Submission) -> None:
        """A submission is next."""

    def checked(self, result: CheckResult) -> None:
        """One of its checks is done."""

    def ended(self, graded: Graded) -> None:
        """It is done."""


def grade_all(
    submissions: Sequence[Submission], model: str | None, watcher: Watcher, seed: int = DEFAULT_SEED
) -> list[Graded]:
    """Grade all in their order with one judge, so one model; not from inside an event loop.

    A submission whose file is not there is not graded. Each runs under its exercise's own limits, and cannot
    read the folders of the others. A judge that ends without a verdict is started again for the next one.
    """

    async def run() -> list[Graded]:
        client = JudgeClient(model, warm=False)
        done: list[Graded] = []
        try:
            for each in submissions:
                watcher.begins(each)
                done.append(await _grade(client, each, _others(each, submissions), seed, watcher.checked))
                watcher.ended(done[-1])
        finally:
            await client.close()
        return done

    return asyncio.run(run())


def _others(one: Submission, all_of_them: Sequence[Submission]) -> set[Path]:
    """The other workspaces; one that holds this one cannot be hidden from it."""
    mine = one.folder.resolve()
    folders = {each.folder.resolve() for each in all_of_them}
    return {folder for folder in folders if folder != mine and folder not in mine.parents}


async def _grade(
    client: JudgeClient,
    one: Submission,
    hidden: set[Path],
    seed: int,
    on_check: Callable[[CheckResult], None],
) -> Graded:
    if not one.path.exists() and not one.path.is_symlink():
        return Graded(one, None)
    root = one.exercise.folder.parent
    try:
        run = client.check(one.exercise.id, one.path, seed, exercises=root, hidden=hidden)
        async with aclosing(run) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return Graded(one, event.verdict)
                if isinstance(event, CheckDone):
                    on_check(event.result)
    except GradingError as error:
        return Graded(one, None, str(error))
    return Graded(one, None, "The judge ended without a verdict.")
