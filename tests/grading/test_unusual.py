"""Right but unusual solutions pass: what a check refuses here is the check's mistake, not the solution's.

Each file of `unusual/` names its exercise and what is unusual about it in its first two lines.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tutor.grading.client import JudgeClient
from tutor.grading.verdict import Verdict

FOLDER = Path(__file__).parent / "unusual"
FILES = sorted(FOLDER.glob("*.py"))
SEED = 5  # lint proves the solutions with 1, 2 and 3


def exercise_of(path: Path) -> str:
    found = re.match(r"# exercise: (\S+)\n# unusual: \S", path.read_text(encoding="utf-8"))
    assert found, path
    return found[1]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """All of them by one judge: the model is loaded and captured once."""

    async def grade() -> dict[str, Verdict]:
        client = JudgeClient(warm=False)
        try:
            return {path.stem: await client.verdict(exercise_of(path), path, SEED) for path in FILES}
        finally:
            await client.close()

    return asyncio.run(grade())


def test_there_are_twenty_of_all_exercises() -> None:
    exercises = [exercise_of(path) for path in FILES]
    assert len(FILES) >= 20
    assert set(exercises) >= {
        "request",
        "tokens",
        "forward",
        "attention",
        "sampling",
        "kv-cache",
        "kv-math",
        "paged",
    }
    assert min(map(exercises.count, exercises)) >= 3


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_it_passes(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    said = [f"{check.name}: {check.status} {check.message}" for check in verdict.checks]
    assert verdict.passed, "\n".join([verdict.message, *said])
