"""The doctor reports what is there, what is missing and what to type; a crash in C code is a line of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from tutor.cli.doctor import command
from tutor.llama import health, machine
from tutor.llama.health import Report, Trial
from tutor.llama.machine import Finding

OK_ENV = {"TERM": "xterm-256color"}


def named(findings: Mapping[str, Finding] | list[Finding] | tuple[Finding, ...], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)  # type: ignore[union-attr]


def test_doctor_on_a_working_machine(child) -> None:  # type: ignore[no-untyped-def]
    done = child("-m", "tutor", "doctor", "--json", env={"TERM": "xterm-256color", "PYTHONUTF8": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert report["can_run"] is True
    found = {finding["name"]: finding for finding in report["findings"]}
    assert list(found) == [
        "terminal",
        "colours",
        "encoding",
        "Python",
        "compiler",
        "engine",
        "model",
        "decode",
        "probe",
        "data",
        "cache",
        "workspace",
        "limits",
        "memory",
        "processes",
        "isolation",
        "Node.js",
    ]
    assert all(finding["ok"] for name, finding in found.items() if name != "isolation")  # a kernel's choice
    assert "llama-cpp-python 0.3." in found["engine"]["detail"]
    assert "sha256 " in found["model"]["detail"]
    assert "tokens/s with 1 thread" in found["decode"]["detail"]
    assert found["probe"]["detail"].startswith("exact: ")


def test_doctor_without_the_engine_reports_and_exits_3(child, stub_folder: Path) -> None:  # type: ignore[no-untyped-def]
    done = child("-m", "tutor", "doctor", env={"PYTHONPATH": str(stub_folder), "TERM": "dumb"})
    said = done.stdout.decode()
    assert (done.returncode, done.stderr) == (3, b"")
    assert "problem  engine" in said
    assert "libllama is broken" in said
    assert "pip install llama-cpp-python==" in said
    assert "problem  colours" in said
    assert "ok       model" in said
    assert "decode" not in said
    assert said.endswith("The tutor cannot run here yet.\n")


def test_doctor_with_a_broken_model_and_folder(child, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    (tmp_path / "file").write_bytes(b"")
    done = child(
        "-m",
        "tutor",
        "--model",
        str(tmp_path / "x.gguf"),
        "--workspace",
        str(tmp_path / "file" / "inside"),
        "doctor",
    )
    said = done.stdout.decode()
    assert done.returncode == 3
    assert "problem  model" in said
    assert "ok       engine" in said
    assert "problem  workspace" in said
    assert "set TUTOR_WORKSPACE to another folder" in said


def test_doctor_leaves_no_folders_behind(child, tmp_path: Path, stub_folder: Path) -> None:  # type: ignore[no-untyped-def]
    child("-m", "tutor", "doctor", env={"PYTHONPATH": str(stub_folder)})
    # The cache holds the digest; nothing else was asked for.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "stub"]


def test_a_crash_of_the_engine_is_a_line(
    tmp_path: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A llama_cpp that ends its process while it is imported, as a GGML_ASSERT would."""
    (tmp_path / "llama_cpp.py").write_text("import os\nos.abort()\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    trial = health.try_engine(model_path, 0.1)
    assert trial.stages == {}
    assert trial.sentence == "The engine crashed (SIGABRT)."
    finding = health._engine(trial)
    assert (finding.ok, finding.needed) == (False, True)
    assert "crashed (SIGABRT)" in finding.detail


def test_an_engine_that_ends_or_hangs(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "llama_cpp.py").write_text("import sys\nsys.exit('gave up')\n", "utf-8")
    assert health.try_engine(model_path, 0.1).sentence == "The engine ended with code 1: gave up."
    (tmp_path / "llama_cpp.py").write_text("import threading\nthreading.Event().wait()\n", "utf-8")
    monkeypatch.setattr(health, "TRIAL_TIMEOUT", 0.5)
    assert "did not answer" in health.try_engine(model_path, 0.1).sentence


def test_a_crash_while_decoding_blames_the_decode(model_path: Path) -> None:
    trial = Trial({"library": {"gpu_offload": True}}, "The engine crashed (SIGILL).", "Do this.")
    assert "GPU support" in health._engine(trial).detail
    (finding,) = health._decode(trial, model_path)
    assert (finding.ok, finding.detail, finding.way_out) == (
        False,
        "The engine crashed (SIGILL).",
        "Do this.",
    )
    assert health._decode(trial, None) == []


@pytest.mark.parametrize("needed", [True, False])
def test_only_needed_findings_stop_the_tutor(monkeypatch: pytest.MonkeyPatch, needed: bool) -> None:
    report = Report((Finding("thing", False, "broken", "Mend it.", needed),))
    monkeypatch.setattr(health, "examine", lambda *_: report)
    result = CliRunner().invoke(command)
    assert result.exit_code == (3 if needed else 0)
    assert result.output.startswith("problem  thing      broken\n                    Mend it.\n")


def test_terminal_size() -> None:
    assert machine.check_terminal(OK_ENV, (80, 24), "utf-8")[0].ok
    for size in ((79, 24), (80, 23)):
        small = machine.check_terminal(OK_ENV, size, "utf-8")[0]
        assert not small.ok
        assert "80 columns by 24 rows" in small.way_out
    assert machine.check_terminal(OK_ENV, None, "utf-8")[0].ok


@pytest.mark.parametrize(
    ("env", "ok", "words"),
    [
        ({}, False, "not set"),
        ({"TERM": "dumb"}, False, "dumb"),
        ({"TERM": "xterm"}, True, "8 or 16"),
        ({"TERM": "xterm-256color"}, True, "256 colours"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, "16 million"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, "switched off"),
    ],
)
def test_colours(env: dict[str, str], ok: bool, words: str) -> None:
    finding = named(machine.check_terminal(env, None, "utf-8"), "colours")
    assert finding.ok is ok
    assert words in finding.detail


@pytest.mark.parametrize(
    ("encoding", "ok"), [("UTF-8", True), ("utf8", True), ("latin-1", False), ("", False)]
)
def test_encoding(encoding: str, ok: bool) -> None:
    finding = named(machine.check_terminal(OK_ENV, None, encoding), "encoding")
    assert finding.ok is ok
    assert ok or "--ascii" in finding.way_out


def test_compilers(tmp_path: Path) -> None:
    assert not machine.check_compiler(False, str(tmp_path)).ok
    fine = machine.check_compiler(True, str(tmp_path))
    assert fine.ok
    assert "none is needed now" in fine.detail
    for name in ("gcc", "clang++"):
        (tmp_path / name).write_text("", "utf-8")
        (tmp_path / name).chmod(0o755)
    found = machine.check_compiler(False, str(tmp_path))
    assert found.ok
    assert str(tmp_path / "clang++") in found.detail


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = machine.check_folder("data", tmp_path / "a" / "b", "TUTOR_DATA")
    assert good.ok
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_bytes(b"")
    bad = machine.check_folder("data", tmp_path / "file" / "b", "TUTOR_DATA")
    assert (bad.ok, bad.needed) == (False, True)
    assert "TUTOR_DATA" in bad.way_out
    monkeypatch.setattr(machine, "MIN_FREE_BYTES", 1 << 80)
    full = machine.check_folder("data", tmp_path, "TUTOR_DATA")
    assert not full.ok
    assert full.way_out == "Free some disk space."
