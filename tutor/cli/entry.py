"""Entry point of `tutor` and `python -m tutor`.

Without arguments it opens the full-screen tutor at once: click and the commands are not imported.
"""

from __future__ import annotations

import gc
import os
import sys

COMPLETION = "_TUTOR_COMPLETE"  # set when a shell asks for completions; click answers it


def main() -> None:
    if len(sys.argv) == 1 and COMPLETION not in os.environ:
        # Imports make many objects and no garbage; the app turns the collector on after its first paint.
        gc.disable()
        from tutor.cli.app import run_app

        sys.exit(run_app(model=None, workspace=None, ascii_only=False))
    from tutor.cli.main import cli

    cli(prog_name="tutor")
