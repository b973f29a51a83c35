"""Removing the folders that guests worked in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def remove(folder: str | Path) -> None:
    """Remove a folder whatever is in it, or was."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # folders inside folders, deeper than rmtree can follow before Python 3.13
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
