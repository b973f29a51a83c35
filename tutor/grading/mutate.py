"""`tutor author mutate`: which small changes of solution.py the checks do not notice.

A survivor is a weak check or a change that does not alter the behaviour. A person decides which: the second
kind is listed with its reason in the exercise's `equivalent.toml`, and then counts as explained.

    [[equivalent]]
    function = "padded"                      # as the report prints it; left out at module level
    was = "return (cells + 255) // 256 * 256"
    now = "return (cells + 256) // 256 * 256"
    why = "one sentence"
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import tomllib
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import msgspec

from tutor.grading.client import JudgeClient
from tutor.grading.errors import ExerciseError
from tutor.grading.exercise import EQUIVALENT_FILE, Exercise
from tutor.grading.messages import CheckDone, Finished
from tutor.grading.mutations import Mutation, mutations

CALL_SECONDS = 2.0
RUN_SECONDS = 240.0


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutation that no check can notice, and why."""

    was: str
    now: str
    why: str
    function: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.function, self.was, self.now


class _EquivalentFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    equivalent: tuple[Equivalent, ...]


class Outcome(NamedTuple):
    """What became of a mutation: the first check that noticed it ("" for none), and why none can ("")."""

    mutation: Mutation
    noticed_by: str
    why: str

    @property
    def survived(self) -> bool:
        return not self.noticed_by

    @property
    def wrong(self) -> str:
        """What the author has to do something about, as one sentence, or ""."""
        if self.survived and not self.why:
            return "no check notices it"
        if self.noticed_by and self.why:
            return f"{EQUIVALENT_FILE} calls it equivalent, but {self.noticed_by!r} notices it"
        return ""


class Report(NamedTuple):
    """The outcomes in the order of the file; `left` mutations were not tried because time was up."""

    outcomes: tuple[Outcome, ...]
    left: int

    @property
    def noticed(self) -> int:
        return sum(bool(outcome.noticed_by) for outcome in self.outcomes)

    @property
    def wrong(self) -> int:
        return sum(bool(outcome.wrong) for outcome in self.outcomes)


def mutations_of(item: Exercise) -> list[Mutation]:
    """All mutations of an exercise's solution."""
    return list(mutations(item.solution.read_text(encoding="utf-8")))


def choose(found: list[Mutation], start: int, limit: int | None) -> list[Mutation]:
    """Those from number `start` (from 1) on, at most `limit` of them, spread over the file."""
    rest = found[start - 1 :]
    if limit is None or len(rest) <= limit:
        return rest
    return [rest[position * len(rest) // limit] for position in range(limit)]


def read_equivalents(item: Exercise) -> tuple[Equivalent, ...]:
    """The mutations that the exercise lists as equivalent. ExerciseError when the file is wrong."""
    path = item.folder / EQUIVALENT_FILE
    if not path.is_file():
        return ()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(data, _EquivalentFile).equivalent
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ExerciseError(f"exercises/{item.id}/{EQUIVALENT_FILE}: {error}") from error


def mutate_exercise(
    item: Exercise,
    model: str | None,
    chosen: list[Mutation],
    report: Callable[[int, Outcome], None],
    *,
    call_seconds: float = CALL_SECONDS,
    run_seconds: float = RUN_SECONDS,
) -> Report:
    """Grade the `chosen` mutations of the exercise's solution. ExerciseError when the solution itself fails.

    report is called with the number of mutations done so far and the newest outcome.
    call_seconds: endless loops are common here, so a call gets this limit if it is below the exercise's own.
    run_seconds: no mutation is begun after it.
    """
    reasons = {each.key: each.why for each in read_equivalents(item)}
    seconds = min(call_seconds, item.limits.call_seconds)

    async def run() -> Report:
        client = JudgeClient(model, item.folder.parent, warm=False)
        done: list[Outcome] = []
        try:
            if not (await client.verdict(item.id, item.solution)).passed:
                raise ExerciseError(f"exercises/{item.id}/solution.py does not pass; repair it first.")
            end = time.monotonic() + run_seconds
            for mutation in chosen:
                if time.monotonic() > end:
                    break
                noticed = await _noticed_by(item, mutation, client, seconds)
                why = reasons.get((mutation.function, mutation.was, mutation.now), "")
                done.append(Outcome(mutation, noticed, why))
                report(len(done), done[-1])
        finally:
            await client.close()
        return Report(tuple(done), len(chosen) - len(done))

    return asyncio.run(run())


async def _noticed_by(item: Exercise, mutation: Mutation, client: JudgeClient, seconds: float) -> str:
    """The first check that does not pass, "import" when the file does not even load, "" for none."""
    with tempfile.TemporaryDirectory(prefix="inference-tutor-mutate-") as scratch:
        path = Path(scratch) / item.file
        path.write_text(mutation.source, encoding="utf-8")
        async with aclosing(client.check(item.id, path, call_seconds=seconds)) as events:
            async for event in events:
                if isinstance(event, CheckDone) and event.result.status != "pass":
                    return event.result.name
                if isinstance(event, Finished) and not event.verdict.passed:
                    return "import"
    return ""
