"""The health of a machine, for `tutor doctor`: everything the tutor needs, checked one by one.

llama.cpp is tried in a child process only, so that a crash inside it is a line of the report.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutor import resources
from tutor.llama import library, machine
from tutor.llama.errors import EngineError
from tutor.llama.machine import Finding
from tutor.llama.model import file_digest, find_model

TRIAL_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What the child process reported. `stages` maps a stage that worked to its values."""

    stages: dict[str, dict[str, Any]]
    sentence: str = ""
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order they are shown."""

    findings: tuple[Finding, ...]

    @property
    def can_run(self) -> bool:
        """Can the tutor run on this machine?"""
        return all(finding.ok for finding in self.findings if finding.needed)


def examine(model: str | None = None, workspace: str | None = None, seconds: float = 1.0) -> Report:
    """Check the machine. `seconds` is how long the trial decodes. Never raises EngineError."""
    path, model_findings = _model(model)
    trial = try_engine(path, seconds)
    engine_works = "library" in trial.stages
    folder = Path(workspace) if workspace else resources.workspace_dir()
    return Report(
        (
            *machine.check_terminal(os.environ, machine.terminal_size(), sys.stdout.encoding or ""),
            machine.check_python(),
            machine.check_compiler(engine_works),
            _engine(trial),
            *model_findings,
            *_decode(trial, path),
            machine.check_folder("data", resources.data_dir(), "TUTOR_DATA"),
            machine.check_folder("cache", resources.cache_dir(), "TUTOR_CACHE"),
            machine.check_folder("workspace", folder, "TUTOR_WORKSPACE"),
        )
    )


def try_engine(path: Path | None, seconds: float) -> Trial:
    """Run the trial in a child process. Without a model it goes no further than the library."""
    command = [sys.executable, "-m", "tutor.llama.trial", str(path or ""), str(seconds)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TRIAL_TIMEOUT, check=False, env=_environment()
        )
    except subprocess.TimeoutExpired:
        return Trial({}, f"The engine did not answer within {TRIAL_TIMEOUT:.0f} seconds.", library.INSTALL)
    stages: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"stage"'):
            values = json.loads(line)
            stages[values.pop("stage")] = values
    if (error := stages.pop("error", None)) is not None:
        return Trial(stages, error["sentence"], error["way_out"])
    if done.returncode != 0:
        return Trial(stages, _crash(done.returncode, done.stderr), library.INSTALL)
    return Trial(stages)


def _environment() -> dict[str, str]:
    """The child imports the same tutor as this process, from wherever it was started."""
    root = str(Path(resources.__file__).resolve().parent.parent)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    # Last, so that it cannot hide anything of the environment.
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, root])}


def _crash(code: int, stderr: str) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"The engine crashed ({name})."
    last = stderr.strip().splitlines()[-1:] or ["no reason given"]
    return f"The engine ended with code {code}: {last[0]}."


def _engine(trial: Trial) -> Finding:
    try:
        version = importlib.metadata.version(library.PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if "library" in trial.stages:
        offload = trial.stages["library"]["gpu_offload"]
        gpu = "built with GPU support (the tutor computes on the CPU)" if offload else "CPU only"
        return Finding("engine", True, f"{library.PACKAGE} {version}, {gpu}", needed=True)
    detail = f"{library.PACKAGE} {version or 'is not installed'}"
    return Finding("engine", False, f"{detail}. {trial.sentence}", trial.way_out, needed=True)


def _model(model: str | None) -> tuple[Path | None, list[Finding]]:
    """The model file, and its digest."""
    try:
        path = find_model(model)
        digest = file_digest(path)
    except EngineError as error:
        return None, [Finding("model", False, error.sentence, error.way_out, needed=True)]
    except OSError as error:
        reason = error.strerror or str(error)
        way_out = "Check the file's permissions."
        return None, [Finding("model", False, f"The model cannot be read: {reason}.", way_out, needed=True)]
    size = path.stat().st_size
    return path, [Finding("model", True, f"{path}, {size / 1e6:.1f} MB, sha256 {digest}", needed=True)]


def _decode(trial: Trial, path: Path | None) -> list[Finding]:
    """The trial decode; left out when the library or the model is already a problem."""
    if path is None or "library" not in trial.stages:
        return []
    if "decode" not in trial.stages:
        return [Finding("decode", False, trial.sentence, trial.way_out, needed=True)]
    speeds = trial.stages["decode"]["speeds"]
    said = ", ".join(
        f"{speed:.0f} tokens/s with {threads} thread{'s'[: threads - 1]}" for threads, speed in speeds
    )
    findings = [Finding("decode", True, f"{said}, at batch size 1", needed=True)]
    if "exactness" in trial.stages:
        found = trial.stages["exactness"]
        way_out = (
            "" if found["exact"] else "Checks that compare token for token may fail here; please report it."
        )
        findings.append(Finding("probe", found["exact"], found["summary"], way_out))
    return findings
