"""kill -9 of the app while it writes its journal: nothing reported as saved is lost, and it starts again."""

from __future__ import annotations

import random
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tutor.journal.store import Journal

ROOT = Path(__file__).parents[2]
KILLS = 50

# The real app, driven by keys that make it write events. Prints "map" once the map is painted, and an
# event's id only after the journal's append has returned. argv: the journal's folder
DRIVER = """
import asyncio, itertools, sys
from pathlib import Path
from tutor.curriculum.loader import load_course
from tutor.journal.store import Journal
from tutor.ui.app import TutorApp
from tutor.ui.services import Services

class Loud(Journal):
    def append(self, event):
        super().append(event)
        print(event.id, flush=True)

async def main():
    app = TutorApp(Services(load_course(), Loud(Path(sys.argv[1]))))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        print("map", type(app.screen).__name__, flush=True)
        for key in itertools.cycle(["enter", "n", "n", "b", "n", "n", "n", "escape", "down"]):
            await pilot.press(key)

asyncio.run(main())
"""


def read_until(process: subprocess.Popen[bytes], word: bytes, seconds: float) -> bytes:
    """Output of the process up to and including `word`; fails when it does not come."""
    assert process.stdout is not None
    output = b""
    while word not in output:
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        assert ready, f"no {word!r} in {seconds} s, only {output!r}"
        chunk = process.stdout.read1(4096)
        assert chunk, f"the app ended: {output!r}"
        output += chunk
    return output


@pytest.mark.timeout(400)
def test_fifty_kills_of_the_app(tmp_path: Path) -> None:
    rng = random.Random(9)
    saved: list[str] = []
    for _ in range(KILLS):
        app = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
        )
        output = read_until(app, b"map MapScreen\n", 60.0)
        for _ in range(rng.randint(1, 3)):
            output += read_until(app, b"\n", 60.0)  # it has written an event since
        with pytest.raises(subprocess.TimeoutExpired):
            app.wait(timeout=rng.uniform(0.0, 0.25))
        app.kill()
        assert app.stdout is not None
        output += app.stdout.read()
        app.stdout.close()
        assert app.wait() == -9
        lines = output.split(b"\n")[:-1]  # what stands behind the last line end was being printed
        saved += [line.decode() for line in lines if line and not line.startswith(b"map")]
        found = {event.id for event in Journal(tmp_path).read().events}
        assert set(saved) <= found
    assert len(saved) > KILLS
