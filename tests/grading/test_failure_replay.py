"""A failed check leaves a recording that opens at the step where the learner's block tables went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tutor.cli.main import cli
from tutor.grading import failures
from tutor.grading.client import run_check
from tutor.grading.exercise import find_exercise
from tutor.grading.recorder import MoveRecorder, table_rows
from tutor.grading.verdict import CheckResult, Verdict
from tutor.labs.registry import get_kind, kinds
from tutor.trace.codec import read_trace
from tutor.trace.playback import Playback
from tutor.trace.views import LabView


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "WORKSPACE"):
        monkeypatch.setenv(f"TUTOR_{name}", str(tmp_path / name.lower()))
    return tmp_path / "data"


def check(tmp_path: Path, right: str, wrong: str) -> Verdict:
    """The solution of `paged` with one change."""
    item = find_exercise("paged")
    text = item.solution.read_text(encoding="utf-8")
    assert right in text
    path = tmp_path / item.file
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    return run_check("paged", path)


def first_failure(verdict: Verdict) -> CheckResult:
    return next(result for result in verdict.checks if result.status != "pass")


def picture(path: Path, step: int | None) -> LabView:
    store = read_trace(path)
    playback = Playback(store, follow=False)
    playback.seek(store.last_step if step is None else step)
    return playback.view


def test_a_wrong_allocator_is_replayed_at_its_wrong_step(data: Path, tmp_path: Path) -> None:
    verdict = check(
        tmp_path, "needed = -(-self.tokens // self.block_size)", "needed = self.tokens // self.block_size"
    )
    failed = first_failure(verdict)
    assert failed.name == "blocks of a growing request" and failed.misconception == "rounded down"
    view = picture(Path(failed.trace), failed.step)
    assert view.compared is not None and not view.compared.holds
    assert view.compared.call.startswith("append(") and "holds exactly" in view.compared.invariant
    held = {what: (right, mine) for what, right, mine in view.compared.rows}["blocks held"]
    assert int(held[1]) < int(held[0])
    assert str(view.serving.requests[0].num_computed_tokens) in failed.message

    said = CliRunner().invoke(cli, ["replay", "--failure", "--plain"])
    assert said.exit_code == 0
    assert "VIOLATED: A request of" in said.output and "≠ blocks held" in said.output
    assert said.output == CliRunner().invoke(cli, ["replay", "--failure", "paged", "--plain"]).output


def test_a_fork_shows_expected_and_actual_tables_side_by_side(data: Path, tmp_path: Path) -> None:
    verdict = check(tmp_path, "    child.append(take())\n", "    child.append(blocks[full])\n")
    failed = first_failure(verdict)
    assert failed.name == "fork without overwriting" and failed.step == 1
    view = picture(Path(failed.trace), failed.step)
    assert view.compared is not None and "full blocks only" in view.compared.invariant
    wrong = [row for row in view.compared.rows if row[1] != row[2]]
    assert [what for what, _, _ in wrong] == ["child[2]", "copies"]
    parent, child = view.serving.requests
    assert parent.block_ids == child.block_ids, "the picture has what the code did"
    assert {block.ref_cnt for block in view.serving.blocks if block.ref_cnt} == {2}


def test_an_exception_ends_the_recording_with_its_sentence(data: Path, tmp_path: Path) -> None:
    verdict = check(tmp_path, "        self.blocks += new\n", "        self.blocks += new\n        new[5]\n")
    failed = first_failure(verdict)
    view = picture(Path(failed.trace), failed.step)
    assert view.compared is not None and not view.compared.holds
    assert view.compared.rows[-1][0] == "the call" and "IndexError" in view.compared.rows[-1][2]


def test_a_pass_leaves_no_recording_and_only_the_newest_are_kept(data: Path) -> None:
    verdict = run_check("paged", find_exercise("paged").solution)
    assert verdict.passed and not failures.failures_dir().exists()
    recording = MoveRecorder("x.py", {"exercise": "paged", "check": "c"}, 4, 8)
    paths = [failures.keep(ident, recording.store) for ident in ["paged", *["other"] * failures.KEPT]]
    assert len(list(failures.failures_dir().iterdir())) == failures.KEPT
    assert failures.latest("paged") is None, "the oldest went"
    assert failures.latest() == failures.latest("other") == Path(paths[-1])


def test_without_a_recording_replay_says_so(data: Path) -> None:
    none = CliRunner().invoke(cli, ["replay", "--failure", "paged"])
    assert none.exit_code == 3 and "No failed check of paged left a recording" in none.stderr
    both = CliRunner().invoke(cli, ["replay", "x.jsonl", "--failure"])
    assert both.exit_code == 2


def test_a_folder_that_cannot_be_written_costs_the_replay_and_not_the_verdict(
    tmp_path: Path, data: Path
) -> None:
    data.write_text("a file where the folder should be")
    verdict = check(
        tmp_path, "needed = -(-self.tokens // self.block_size)", "needed = self.tokens // self.block_size"
    )
    assert first_failure(verdict).trace == "" and first_failure(verdict).status == "fail"


def test_tables_of_another_length_or_kind_and_strange_blocks_can_be_drawn() -> None:
    assert table_rows("t", [1, 2], [1]) == [("t[0]", 1, 1), ("t[1]", 2, "–")]
    assert table_rows("t", [1], None) == [("t", [1], None)]
    moves = MoveRecorder("x.py", {}, 4, 8)
    moves.request("A", 3)
    moves.move("append(1)")
    moves.took("A", [1, -1, 99], 4)
    moves.failed("blocks", "[1]", "[1, -1, 99]")
    view = Playback(moves.store).view
    assert view.serving.requests[0].block_ids == (1,)
    assert view.compared is not None and view.compared.rows == (("blocks", "[1]", "[1, -1, 99]"),)
    assert "failure" not in kinds() and get_kind("failure").plain(view)
