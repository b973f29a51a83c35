"""The judge as its caller sees it: events, cancelling, restarts, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from tutor.grading.client import CheckCancelled, JudgeClient, run_check
from tutor.grading.errors import JudgeError
from tutor.grading.messages import HEADER, CheckDone, CheckStarted, Finished, frame

ROOT = Path(__file__).parents[2]
Descendants = Callable[[int], set[int]]
WaitUntil = Callable[[Callable[[], bool]], bool]
ENDLESS = "def total(numbers):\n    while True: pass\n"


@pytest_asyncio.fixture
async def judge(exercises: Path) -> AsyncIterator[JudgeClient]:
    client = JudgeClient(exercises=exercises, warm=False)
    yield client
    await client.close()


async def test_events_come_in_order(judge: JudgeClient, exercises: Path) -> None:
    events = [event async for event in judge.check("sum", exercises / "sum" / "solution.py")]
    kinds = [type(event) for event in events]
    assert kinds == [CheckStarted, CheckDone, CheckStarted, CheckDone, Finished]
    assert isinstance(events[-1], Finished)
    verdict = events[-1].verdict
    assert verdict.passed and verdict.exercise == "sum" and verdict.seed == 1
    assert [event.result for event in events if isinstance(event, CheckDone)] == list(verdict.checks)


async def test_the_same_judge_serves_all_checks(judge: JudgeClient, exercises: Path) -> None:
    await judge.start()
    first = judge.pid
    for name in ("starter", "solution", "starter"):
        verdict = await judge.verdict("sum", exercises / "sum" / f"{name}.py")
        assert verdict.passed == (name == "solution")
    assert judge.pid == first


async def test_two_checks_at_once_take_turns(judge: JudgeClient, exercises: Path) -> None:
    paths = [exercises / "sum" / f"{name}.py" for name in ("solution", "starter")]
    verdicts = await asyncio.gather(*(judge.verdict("sum", path) for path in paths))
    assert [verdict.status for verdict in verdicts] == ["pass", "fail"]


async def test_cancel_stops_an_endless_call(judge: JudgeClient, exercises: Path, tmp_path: Path) -> None:
    path = tmp_path / "total.py"
    path.write_text(ENDLESS)
    with pytest.raises(CheckCancelled, match="stopped"):
        async for event in judge.check("sum", path, call_seconds=200.0):
            if isinstance(event, CheckStarted):
                judge.cancel()
    assert (await judge.verdict("sum", exercises / "sum" / "solution.py")).passed


async def test_leaving_the_loop_stops_the_run(judge: JudgeClient, exercises: Path, tmp_path: Path) -> None:
    path = tmp_path / "total.py"
    path.write_text(ENDLESS)
    async with aclosing(judge.check("sum", path, call_seconds=200.0)) as events:
        async for _ in events:
            break
    async with asyncio.timeout(20.0):
        assert (await judge.verdict("sum", exercises / "sum" / "solution.py")).passed


async def test_a_killed_judge_is_an_error_and_starts_again(
    judge: JudgeClient, exercises: Path, tmp_path: Path, descendants: Descendants, wait_until: WaitUntil
) -> None:
    path = tmp_path / "total.py"
    path.write_text(ENDLESS)
    family: set[int] = set()
    with pytest.raises(JudgeError, match="ended without a verdict \\(signal 9\\)"):
        async for _ in judge.check("sum", path, call_seconds=200.0):
            assert judge.pid is not None
            pid = judge.pid
            assert wait_until(lambda pid=pid: len(descendants(pid)) >= 2)
            family = descendants(pid)
            os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not any(_runs(pid) for pid in family))
    assert (await judge.verdict("sum", exercises / "sum" / "solution.py")).passed


async def test_close_ends_everything(
    exercises: Path, descendants: Descendants, wait_until: WaitUntil
) -> None:
    client = JudgeClient(exercises=exercises, warm=False)
    await client.verdict("sum", exercises / "sum" / "solution.py")
    assert client.pid is not None
    judge = client.pid
    assert wait_until(lambda: len(descendants(judge)) == 2)  # the guest in reserve is two processes
    family = {judge, *descendants(judge)}
    await client.close()
    assert wait_until(lambda: not any(_runs(pid) for pid in family))


async def test_no_verdict_for_what_is_no_exercise(judge: JudgeClient, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=r"no exercise 'summ'\. Did you mean sum\?"):
        await judge.verdict("summ", tmp_path / "total.py")


async def test_a_model_that_is_missing_is_a_sentence(exercises: Path, tmp_path: Path) -> None:
    folder = tmp_path / "exercises" / "needs"
    folder.mkdir(parents=True)
    for name in ("exercise.toml", "solution.py"):
        text = (exercises / "sum" / name).read_text()
        (folder / name).write_text(text.replace('id = "sum"', 'id = "needs"'))
    (folder / "check.py").write_text(
        "from tutor.grading.kit import Context, check\n"
        "@check('first', 'nothing')\n"
        "def first(ctx: Context) -> None:\n"
        "    pass\n"
        "@check('model', 'the model')\n"
        "def model(ctx: Context) -> None:\n"
        "    ctx.model.tokenize('hi')\n"
    )
    client = JudgeClient(model=str(tmp_path / "none.gguf"), exercises=folder.parent, warm=True)
    try:
        seen = []
        with pytest.raises(JudgeError, match=r"none\.gguf"):
            async for event in client.check("needs", folder / "solution.py"):
                seen.append(event)
        assert not seen, "the reason comes before the first check"
    finally:
        await client.close()


def test_files_in_the_current_folder_replace_nothing(
    exercises: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random", "json", "numpy", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported from the current folder')\n")
    monkeypatch.chdir(tmp_path)
    assert run_check("sum", exercises / "sum" / "solution.py", exercises=exercises).passed


def test_run_check_reports_each_check(exercises: Path) -> None:
    seen: list[str] = []
    mutant = exercises / "sum" / "mutants" / "empty_is_none.py"
    verdict = run_check("sum", mutant, lambda result: seen.append(result.status), exercises=exercises, seed=5)
    assert seen == ["pass", "fail"]
    assert (verdict.status, verdict.seed) == ("fail", 5)


def test_the_judge_ends_with_its_client(
    exercises: Path, descendants: Descendants, wait_until: WaitUntil
) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom tutor.grading.client import JudgeClient\n"
        "async def main():\n"
        f"    client = JudgeClient(exercises=Path({str(exercises)!r}), warm=False)\n"
        "    await client.start()\n"
        "    print('up', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    with child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        family = descendants(child.pid)
        assert family
        child.kill()
    assert wait_until(lambda: not any(_runs(pid) for pid in family))


def test_the_client_side_is_light() -> None:
    code = (
        "import sys\nimport tutor.grading.client, tutor.grading.workspace, tutor.grading.exercise\n"
        "print([name for name in ('numpy', 'llama_cpp', 'textual', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


async def test_a_reader_cancelled_inside_a_frame_loses_nothing(judge: JudgeClient, exercises: Path) -> None:
    """The header came, the body did not yet: the next reader goes on with the body."""
    await judge.start()
    process = judge._process
    assert process is not None and process.stdout is not None
    told = frame(CheckStarted(7, "a check", 0, 1))
    process.stdout.feed_data(told[:HEADER])
    reader = asyncio.create_task(judge._receive(5.0))
    while judge._body is None:
        await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    process.stdout.feed_data(told[HEADER:])
    assert await judge._receive(5.0) == CheckStarted(7, "a check", 0, 1)
    verdict = await judge.verdict("sum", exercises / "sum" / "solution.py")
    assert verdict.passed
