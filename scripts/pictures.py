"""Pictures of every written lesson and its lab, as SVG and PNG, to be looked at.

    python scripts/pictures.py                       all lessons, 80x24 and 120x40, into build/pictures
    python scripts/pictures.py kv-cache --size 80x24

A lab runs to its end on the real model first. A narrow terminal shows one panel at a time: one picture each.
PNG needs the package cairosvg (a development dependency); without it the SVG files are made alone.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot
from textual.screen import Screen

from tutor.curriculum.loader import load_course, read_lab
from tutor.curriculum.schema import Lesson
from tutor.journal.store import Journal
from tutor.labs.session import LabSession
from tutor.ui.app import TutorApp
from tutor.ui.screens.lab import LabScreen, lab_screen
from tutor.ui.screens.lesson import LessonScreen
from tutor.ui.services import Services

SIZES = ("80x24", "120x40")
FOLDER = Path("build/pictures")
LAB_LIMIT = 120.0  # seconds for a lab to end by itself
NO_PNG = "PNG files are left out: cairosvg is missing. Type: pip install cairosvg"


def main(arguments: list[str] | None = None) -> int:
    """Make the pictures; exit code 2 for an unknown lesson or size."""
    parser = argparse.ArgumentParser(description="Pictures of every written lesson and its lab.")
    parser.add_argument("lessons", nargs="*", help="lesson ids; all written ones without them")
    parser.add_argument("--size", action="append", metavar="WxH", help=f"default: {' and '.join(SIZES)}")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    written = {lesson.id: lesson for lesson in load_course() if lesson.written}
    unknown = [name for name in given.lessons if name not in written]
    if unknown:
        parser.error(f"no written lesson {', '.join(unknown)}; there are {', '.join(written)}")
    try:
        sizes = [(int(w), int(h)) for w, h in (size.split("x") for size in given.size or SIZES)]
    except ValueError:
        parser.error("a size is WIDTHxHEIGHT, such as 80x24")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.lessons or written:
        for size in sizes:
            for path in asyncio.run(_lesson_pictures(written[name], size, given.folder)):
                print(path)
    if importlib.util.find_spec("cairosvg") is None:
        print(NO_PNG, file=sys.stderr)
    return 0


async def _lesson_pictures(lesson: Lesson, size: tuple[int, int], folder: Path) -> list[Path]:
    """The lesson's first page and its lab at its end."""
    spec = read_lab(lesson)
    stem = f"{lesson.number:02}-{lesson.id}"
    made = await _pictures(lambda s: LessonScreen(s, lesson), size, folder / f"{stem}-read")
    if spec is not None:
        made += await _pictures(lambda s: lab_screen(s, spec, lesson.id), size, folder / f"{stem}-lab")
    return made


async def _pictures(
    make: Callable[[Services], Screen[None]], size: tuple[int, int], stem: Path
) -> list[Path]:
    """One screen in an app of its own, with a journal that is thrown away."""
    with tempfile.TemporaryDirectory() as scratch:
        services = Services(
            load_course(),
            Journal(Path(scratch)),
            workspace=Path(scratch) / "work",
            make_lab=lambda kind, knobs, model, trace: LabSession(
                kind, knobs, model, trace=trace, steps_per_second=0.0
            ),
        )
        app = TutorApp(services, first=lambda: make(services))
        async with app.run_test(size=size) as pilot:
            names = await _settle(pilot)
            made: list[Path] = []
            for number, name in enumerate(names, start=1):
                if len(names) > 1:
                    await pilot.press(str(number))
                    await pilot.pause()
                made += _save(app, f"{stem}{name}-{size[0]}x{size[1]}", size)
            return made


async def _settle(pilot: Pilot[int]) -> list[str]:
    """Wait until nothing moves. Returns what to add to the file's name: a panel each where they are tabs."""
    await pilot.pause()
    screen = pilot.app.screen
    if not isinstance(screen, LabScreen):
        return [""]
    deadline = time.monotonic() + LAB_LIMIT
    while screen.session.status not in ("done", "dead"):
        if time.monotonic() > deadline:
            raise SystemExit(f"The lab {screen.kind.id} did not end within {LAB_LIMIT:.0f} s.")
        await pilot.pause(0.05)
    if screen.session.status == "dead":
        raise SystemExit(f"The lab {screen.kind.id} died: {screen.session.error}")
    await pilot.pause(0.5)  # the screen paints at its own pace
    return [""] if screen.has_class("-wide") else [f"-{name}" for name in screen.panels]


def _save(app: TutorApp, stem: str, size: tuple[int, int]) -> list[Path]:
    """The screen as SVG, and as PNG where cairosvg is installed."""
    svg = app.export_screenshot(title=f"{size[0]}x{size[1]}")
    paths = [Path(f"{stem}.svg")]
    paths[0].write_text(svg, encoding="utf-8")
    if importlib.util.find_spec("cairosvg") is not None:
        import cairosvg

        paths.append(Path(f"{stem}.png"))
        mono = svg.replace("Fira Code", "monospace")  # cairo takes the first family only, and few have that
        cairosvg.svg2png(bytestring=mono.encode(), write_to=str(paths[1]), output_width=size[0] * 12)
    return paths


if __name__ == "__main__":
    sys.exit(main())
