"""Grading several exercises and a class: JUnit XML, exit codes, one judge, and nobody stops the rest."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tutor.cli.main import cli
from tutor.grading import batch
from tutor.grading.batch import Graded, Submission
from tutor.grading.client import JudgeClient
from tutor.grading.exercise import find_exercise
from tutor.grading.junit import junit_xml
from tutor.grading.verdict import CheckResult, Verdict
from tutor.journal.store import Journal

EXERCISES = Path(__file__).parents[1] / "grading" / "exercises"
SOLVED = (EXERCISES / "sum" / "solution.py").read_text()
Tutor = Callable[..., Result]


@pytest.fixture
def tutor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tutor:
    """Runs `tutor …` on the test exercises, with all folders under tmp_path."""
    for name in ("CACHE", "DATA", "WORKSPACE"):
        monkeypatch.setenv(f"TUTOR_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr("tutor.resources.exercises_dir", lambda: EXERCISES)
    return lambda *args: CliRunner().invoke(cli, list(args), catch_exceptions=False)


CLASS = {
    "ada": SOLVED,
    "bob": "def total(numbers):\n    return sum(numbers[1:])\n",
    "cyd": "import os\nos._exit(0)\n",
    "dan": "def total(numbers):\n    while True: pass\n",
    "eve": "def total(numbers):\n    return open({ada!r}).read()\n",
    "fay": SOLVED.replace("result = 0", "print('a\\x00\\x1b[31m')\n    result = 0"),
}


@pytest.fixture
def school(tmp_path: Path) -> Path:
    """One workspace a person; gus handed nothing in, hal a folder in place of the file."""
    folder = tmp_path / "school"
    for name, text in CLASS.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "total.py").write_text(
            text.replace("{ada!r}", repr(str(folder / "ada" / "total.py")))
        )
    (folder / "gus").mkdir()
    (folder / "hal" / "total.py").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


def test_a_class_is_graded_and_nobody_stops_the_rest(
    tutor: Tutor, school: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: set[int | None] = set()
    judged: list[JudgeClient] = []

    class Watched(JudgeClient):
        async def start(self) -> None:
            await super().start()
            judged.append(self)
            pids.add(self.pid)

    monkeypatch.setattr(batch, "JudgeClient", Watched)
    out = tmp_path / "deep" / "out.xml"
    done = tutor("check", "--workspaces", str(school), "--all", "--junit", str(out))
    assert done.exit_code == 1, done.output
    rows = {line.split()[0]: line for line in done.output.splitlines() if " sum " in line}
    assert list(rows) == [*CLASS, "gus", "hal"]
    assert "pass    2 of 2" in rows["ada"] and "pass    2 of 2" in rows["fay"]
    assert "FAIL" in rows["bob"] and "You leave out the first number." in rows["bob"]
    assert "ERROR" in rows["cyd"] and "exit code 0" in rows["cyd"]
    assert "TIMEOUT" in rows["dan"]
    assert "FAIL" in rows["eve"] and "FileNotFoundError" in rows["eve"]
    assert "no file" in rows["gus"] and "is a folder" in rows["hal"]
    assert "ada                  1 of 1 passed" in done.output
    assert len(judged) == len(CLASS) + 1 and len(pids) == 1, "one judge, so one model, for all"
    assert not Journal().read().events, "their work is not the teacher's"

    root = ET.parse(out).getroot()
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == [f"{name}.sum" for name in [*CLASS, "gus", "hal"]]
    for suite in root:
        cases = suite.findall("testcase")
        kinds = [child.tag for case in cases for child in case]
        assert int(suite.get("tests", "")) == len(cases) > 0
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute, "")) == kinds.count(tag)
            assert int(root.get(attribute, "")) >= kinds.count(tag)
        assert all(
            case.get("classname") and case.get("name") and float(case.get("time", "")) >= 0 for case in cases
        )
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["13", "3", "4", "1"]
    failure = suites["bob.sum"].find("testcase/failure")
    assert failure is not None and failure.get("type") == "first"
    assert failure.text is not None and "expected:" in failure.text
    output = suites["fay.sum"].find("system-out")
    assert output is not None and output.text is not None and output.text.startswith("a\ufffd\ufffd[31m")


def test_json_of_a_class_names_each_workspace(tutor: Tutor, school: Path) -> None:
    args = ["--workspace", str(school / "ada"), "--workspace", str(school / "gus")]
    done = tutor("check", "sum", *args, "--json")
    assert done.exit_code == 1
    rows = json.loads(done.output)
    assert [(row["workspace"], row["verdict"] and row["verdict"]["status"]) for row in rows] == [
        ("ada", "pass"),
        ("gus", None),
    ]
    assert rows[1]["problem"] == "There is no file."


def test_one_submission_gives_a_plain_verdict_and_a_report(
    tutor: Tutor, school: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.xml"
    done = tutor("check", "--workspace", str(school / "ada"), "--all", "--junit", str(out))
    assert done.exit_code == 0 and "Passed: 2 of 2 checks" in done.output
    assert ET.parse(out).getroot().get("failures") == "0"
    assert [path.name for path in out.parent.glob("*.part")] == []


def test_several_ids_share_a_judge(tutor: Tutor, tmp_path: Path) -> None:
    tutor("start", "sum")
    shutil.copy(EXERCISES / "calls" / "solution.py", tmp_path / "workspace" / "calls.py")
    done = tutor("check", "calls", "sum", "--json")
    assert done.exit_code == 1
    assert [item["status"] for item in json.loads(done.output)] == ["pass", "fail"]
    assert len(Journal().read().events) >= 2


@pytest.mark.parametrize(
    ("args", "code", "phrase"),
    [
        (["--workspace", "{school}/ada"], 2, "Name the exercises"),
        (["sum", "--workspace", "{school}/nobody"], 2, "does not exist"),
        (["sum", "--workspaces", "{school}/gus"], 2, "no subfolders"),
        (["--all", "--workspace", "{school}/gus"], 2, "There is no exercise file in"),
        (["sum", "calls", "--file", "x.py"], 2, "needs the exercise's id"),
        (["sum", "--file", "x.py", "--workspace", "{school}/ada"], 2, "not both"),
        (["sum", "--workspace", "{school}/gus"], 3, "There is no file"),
        (["sum", "--workspace", "{school}/ada", "--junit", "{school}/ada/total.py/x.xml"], 3, "Cannot write"),
    ],
)
def test_wrong_use_is_one_sentence(
    tutor: Tutor, school: Path, args: list[str], code: int, phrase: str
) -> None:
    done = tutor("check", *(arg.replace("{school}", str(school)) for arg in args))
    assert done.exit_code == code and phrase in done.stderr, done.output + done.stderr


def test_what_could_not_run_is_an_error_of_the_report() -> None:
    item = find_exercise("sum", EXERCISES)
    one = Submission(item, Path("total.py"), "a\x00b", Path())
    hurt = CheckResult(name="n\x1b", status="timeout", message="", against="\ud800")
    verdict = Verdict(exercise="sum", version=1, status="error", checks=(hurt,), seed=1, message="It broke.")
    root = ET.fromstring(junit_xml([Graded(one, None, "no model"), Graded(one, verdict)]).encode())
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "0", "3", "0"]
    assert [error.get("message") for error in root.iter("error")] == ["no model", "timeout", "It broke."]


def test_another_model_has_its_own_references(
    tutor: Tutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name in ("CACHE", "DATA"):
        monkeypatch.setenv(f"TUTOR_{name}", str(tmp_path / name.lower()))
    from tutor.llama.model import file_digest, find_model

    other = tmp_path / "other.gguf"
    data = find_model(None).read_bytes()
    name = b"smollm2"  # a word of the metadata: other bytes, the same weights
    place = data.lower().index(name)
    other.write_bytes(data[:place] + b"X" + data[place + 1 :])
    item = find_exercise("tokens")
    done = tutor("check", "tokens", "--file", str(item.solution), "--against", str(other), "--json")
    assert done.exit_code == 0, done.output + done.stderr
    assert json.loads(done.output)["model"] == "other"
    folders = [path.name for path in (tmp_path / "cache" / "references").iterdir()]
    assert folders == [file_digest(other)[:16]] != [file_digest(find_model(None))[:16]]
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    refused = tutor(
        "check", "kv-math", "--file", str(find_exercise("kv-math").solution), "--against", str(broken)
    )
    assert refused.exit_code == 3 and refused.stderr
