"""The bundled model, loaded once for the whole folder, and children that import the tutor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tutor.llama.model import Model, find_model
from tutor.llama.reference import ReferenceModel

ROOT = Path(__file__).resolve().parents[2]
Child = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="session")
def reference() -> Iterator[ReferenceModel]:
    with ReferenceModel.load() as loaded:
        yield loaded


@pytest.fixture(scope="session")
def model(reference: ReferenceModel) -> Model:
    return reference.model


@pytest.fixture(scope="session")
def model_path() -> Path:
    return find_model()


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """Run Python in a child process: `child("code", *arguments, env={…})`; stdout and stderr are captured."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        extra = dict(env or {})
        paths = [*filter(None, [extra.pop("PYTHONPATH", "")]), str(ROOT)]
        environment = {
            **{key: value for key, value in os.environ.items() if key != "TUTOR_MODEL"},
            "TUTOR_CACHE": str(tmp_path / "cache"),
            "TUTOR_DATA": str(tmp_path / "data"),
            "TUTOR_WORKSPACE": str(tmp_path / "workspace"),
            **extra,
            "PYTHONPATH": os.pathsep.join(paths),
        }
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, env=environment, timeout=120, check=False
        )

    return run


@pytest.fixture
def stub_folder(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH whose llama_cpp cannot be imported."""
    folder = tmp_path / "stub"
    folder.mkdir()
    (folder / "llama_cpp.py").write_text("raise ImportError('libllama is broken')\n", "utf-8")
    return folder
