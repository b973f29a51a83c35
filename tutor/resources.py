"""Where the shipped files are: lessons, exercises and the user's own folders.

Every path is computed when asked for, so that a test or a learner can move a folder with an
environment variable. This module imports nothing of the tutor and may be imported from everywhere.
"""

from __future__ import annotations

import os
from pathlib import Path

APP = "inference-tutor"


def _shipped(name: str) -> Path:
    """A data folder: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parent
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name


def content_dir() -> Path:
    """The lessons (`NN-lesson-id/`)."""
    return _shipped("content")


def exercises_dir() -> Path:
    """The exercises (`lesson-id/`)."""
    return _shipped("exercises")


def data_dir() -> Path:
    """The learner's journal and saved traces. `TUTOR_DATA` moves it."""
    import platformdirs

    return Path(os.environ.get("TUTOR_DATA") or platformdirs.user_data_dir(APP, appauthor=False))


def cache_dir() -> Path:
    """What can be rebuilt: reference answers of the model. `TUTOR_CACHE` moves it."""
    import platformdirs

    return Path(os.environ.get("TUTOR_CACHE") or platformdirs.user_cache_dir(APP, appauthor=False))


def workspace_dir() -> Path:
    """The learner's exercise files. `TUTOR_WORKSPACE` moves it."""
    return Path(os.environ.get("TUTOR_WORKSPACE") or Path.home() / APP)
