"""Lesson packs: folders of lessons and exercises beside the shipped ones.

A pack has the layout of this repository: `content/NN-lesson-id/` and `exercises/ID/`. It comes as a folder
(`tutor --pack DIR`, or TUTOR_PACKS with the separator of PATH) or as an installed package that declares

    [project.entry-points."inference_tutor.lessons"]
    my-pack = "my_pack"            # an importable package; its folder holds content/ and exercises/

The package is located, not imported: opening the course runs no code of a pack.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tutor import resources
from tutor.curriculum.errors import CourseError

GROUP = "inference_tutor.lessons"
VARIABLE = "TUTOR_PACKS"


class Pack(NamedTuple):
    """`origin` says where it was named, for messages: a folder, or an installed package."""

    folder: Path
    origin: str

    @property
    def content(self) -> Path:
        return self.folder / "content"

    @property
    def exercises(self) -> Path:
        return self.folder / "exercises"


def packs() -> tuple[Pack, ...]:
    """All packs: those of TUTOR_PACKS in its order, then installed ones by name; each folder once.

    Raises CourseError for a folder that is no pack and for a package that cannot be found.
    """
    named = tuple(part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)
    unique: dict[Path, Pack] = {}
    for pack in (*(folder_pack(Path(part)) for part in named), *_installed(tuple(sys.path))):
        unique.setdefault(pack.folder, pack)
    return tuple(unique.values())


def folder_pack(folder: Path) -> Pack:
    """The pack in a folder. Raises CourseError when it has neither content/ nor exercises/."""
    return _checked(Pack(folder.expanduser().resolve(), str(folder)))


def add_packs(folders: Iterable[Path]) -> None:
    """Put folders in front of TUTOR_PACKS, for this process and those that it starts (judge, labs).

    Raises CourseError for a folder that is no pack.
    """
    ours = [str(folder_pack(folder).folder) for folder in folders]
    before = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    if ours:
        os.environ[VARIABLE] = os.pathsep.join([*ours, *before])


def content_folders() -> tuple[Path, ...]:
    """The shipped lessons, then those of the packs that have lessons."""
    return (resources.content_dir(), *(pack.content for pack in packs() if pack.content.is_dir()))


def exercise_folders() -> tuple[Path, ...]:
    """The shipped exercises, then those of the packs that have exercises."""
    return (resources.exercises_dir(), *(pack.exercises for pack in packs() if pack.exercises.is_dir()))


def _checked(pack: Pack) -> Pack:
    if not (pack.content.is_dir() or pack.exercises.is_dir()):
        wanted = "a pack is a folder with content/ or exercises/ in it"
        raise CourseError(f"{pack.origin} is no lesson pack: {wanted}.")
    return pack


# --- installed packages -------------------------------------------------------------------------


@functools.cache  # what is installed does not change while the tutor runs; keyed by sys.path
def _installed(path: tuple[str, ...]) -> tuple[Pack, ...]:
    """Packs of installed packages, by name.

    importlib.metadata takes tens of milliseconds to import and reads every package's metadata, before
    anything is on the screen. Nearly always there is no pack: then these files say so in a few.
    """
    if not any(GROUP.encode() in data for data in _entry_point_files(path)):
        return ()
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(_located(point.name, point.value) for point in points)


def _entry_point_files(path: Iterable[str]) -> Iterator[bytes]:
    for folder in dict.fromkeys(path):
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue  # a zip file, or a folder that is not there
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                        yield file.read()
                except OSError:
                    continue  # most packages have none


def _located(name: str, module: str) -> Pack:
    """The folder of a package, found without importing it."""
    from importlib.util import find_spec

    origin = f"the installed pack {name!r} (package {module})"
    top, *below = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise CourseError(f"{origin} cannot be found; install it again or remove it.")
    return _checked(Pack(Path(places[0], *below).resolve(), origin))
