"""Submissions that misbehave: the right verdict in time, nothing left running, and the next check works."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_answers import ANSWERS, PATCHES
from hostile_bank import CALL_SECONDS, ENDINGS, LEFTOVERS, PIPES, PROCESSES, Hostile, Places, submission

from tutor.grading.client import JudgeClient
from tutor.grading.verdict import Verdict

on_the_judge = pytest.mark.asyncio(loop_scope="module")

EXERCISES = Path(__file__).parent / "exercises"
SOLUTION = EXERCISES / "sum" / "solution.py"
LATEST = 2.0  # seconds that a submission may outlive its limit by


async def grade(judge: JudgeClient, path: Path, places: Places | None = None) -> Verdict:
    hidden = [places.neighbour] if places else []
    return await judge.verdict("sum", path, call_seconds=CALL_SECONDS, hidden=hidden)


@pytest.fixture
def nothing_left(
    judge: JudgeClient,
    descendants: Callable[[int], set[int]],
    wait_until: Callable[[Callable[[], bool]], bool],
) -> Callable[[], bool]:
    """Whether only the guest in reserve (two processes) is left under the judge, at the latest in a while."""
    return lambda: wait_until(lambda: len(descendants(judge.pid or 0)) == 2)


CASES = (*PROCESSES, *PATCHES, *ANSWERS)
RUNS = [("namespaces", case) for case in CASES]
RUNS += [("plain", case) for case in CASES if case.plain]


@on_the_judge
@pytest.mark.parametrize(
    ("judge", "case"), RUNS, indirect=["judge"], ids=[f"{mode}-{case.name}" for mode, case in RUNS]
)
async def test_misbehaviour_gets_its_verdict(
    judge: JudgeClient, case: Hostile, tmp_path: Path, places: Places, nothing_left: Callable[[], bool]
) -> None:
    await judge.start()
    before, started = judge.pid, time.monotonic()
    verdict = await grade(judge, submission(case, tmp_path, places), places)
    took = time.monotonic() - started
    assert verdict.status in case.statuses.split(), verdict
    messages = [verdict.message, *(result.message for result in verdict.checks)]
    assert any(case.phrase in message for message in messages), messages
    assert took < CALL_SECONDS + LATEST, f"{took:.1f} s"
    assert judge.pid == before, "the judge itself survives"
    if case in (*ENDINGS, *PIPES):  # for the others the next case is the next check
        assert (await grade(judge, SOLUTION)).passed
    assert nothing_left()


def test_the_bank_is_large_and_no_case_is_there_twice() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 70 and len(set(names)) == len(names)


@on_the_judge
@pytest.mark.parametrize("name", LEFTOVERS)
async def test_a_right_answer_leaves_nothing_running(
    judge: JudgeClient, name: str, tmp_path: Path, nothing_left: Callable[[], bool]
) -> None:
    case = Hostile(name, "pass", "", f"{LEFTOVERS[name]}\nreturn sum(numbers)")
    verdict = await grade(judge, submission(case, tmp_path))
    assert verdict.passed, verdict
    assert nothing_left()
    assert (await grade(judge, SOLUTION)).passed


@on_the_judge
async def test_100_mb_of_output_is_drained_and_capped(judge: JudgeClient, tmp_path: Path) -> None:
    body = "for _ in range(100): sys.stdout.write('x' * (10**5 - 1) + '\\n')\nreturn sum(numbers)"
    path = submission(Hostile("loud", "pass", "", body), tmp_path)  # ten calls of 10 MB
    before = _peak_kb(judge)
    verdict = await judge.verdict("sum", path, call_seconds=20.0)
    assert verdict.passed, verdict
    assert len(verdict.output) < 70_000
    assert verdict.output.endswith("more bytes were printed and not kept.")
    assert _peak_kb(judge) - before < 30_000


def _peak_kb(judge: JudgeClient) -> int:
    status = Path(f"/proc/{judge.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@on_the_judge
async def test_a_thread_cannot_call_back_after_its_call(judge: JudgeClient, tmp_path: Path) -> None:
    text = (EXERCISES / "calls" / "solution.py").read_text()
    late = (
        "    import threading\n"
        "    def late():\n"
        "        while True: step(1)\n"
        "    threading.Thread(target=late, daemon=True).start()\n"
    )
    path = tmp_path / "calls.py"
    path.write_text(text.replace("    results, value = [], 1\n", f"{late}    results, value = [], 1\n"))
    verdict = await judge.verdict("calls", path)
    assert verdict.checks[0].status in ("error", "fail")
    assert not verdict.passed
    assert (await grade(judge, SOLUTION)).passed


@on_the_judge
async def test_limits_and_environment_of_the_guest(
    judge: JudgeClient, tmp_path: Path, wait_until: Callable[[Callable[[], bool]], bool]
) -> None:
    body = (
        "import json, resource as r\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpgid(0),\n"
        "    [r.getrlimit(n)[1] for n in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE)]]))\n"
        "return sum(numbers)"
    )
    verdict = await grade(judge, submission(Hostile("looks around", "pass", "", body), tmp_path))
    assert verdict.passed
    environment, folder, own_session, limits = json.loads(verdict.output.splitlines()[0])
    assert "TUTOR_CACHE" not in environment and environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == folder
    assert wait_until(lambda: not os.path.exists(folder)), "it is removed after the verdict"
    assert own_session
    assert limits == [768 * 2**20, 11, 16 * 2**20, 64]


@on_the_judge
async def test_files_beside_the_submission_can_be_imported(judge: JudgeClient, tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text("def add(numbers): return sum(numbers)\n")
    body = "from helper_of_mine import add\nopen('note', 'w').write('x')\nreturn add(numbers)"
    assert (await grade(judge, submission(Hostile("imports", "pass", "", body), tmp_path))).passed
    assert not (tmp_path / "note").exists(), "the working folder is another one"
