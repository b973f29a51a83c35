"""The shipped exercises: whole folders, and one of them graded on the real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutor.grading.client import JudgeClient, run_check
from tutor.grading.exercise import exercise_ids, find_exercise
from tutor.grading.lint import static_problems


@pytest.mark.parametrize("ident", exercise_ids())
def test_folder_is_whole(ident: str) -> None:
    assert static_problems(find_exercise(ident)) == ()


@pytest.mark.parametrize("ident", exercise_ids())
def test_starter_fails_and_is_not_an_error(ident: str) -> None:
    verdict = run_check(ident, find_exercise(ident).starter)
    assert verdict.status == "fail"
    unwritten = [result for result in verdict.checks if "is not written yet" in result.message]
    assert unwritten and not any(result.misconception for result in unwritten)


async def test_references_are_computed_once(own_folders: Path) -> None:
    exercise = find_exercise("kv-math")
    for warm, expect_model in ((True, True), (False, False)):
        client = JudgeClient(warm=warm)
        try:
            verdict = await client.verdict("kv-math", exercise.solution)
        finally:
            await client.close()
        assert verdict.passed, verdict
        assert "SmolLM2" in verdict.model
        assert (verdict.model_seconds > 0.01) is expect_model
