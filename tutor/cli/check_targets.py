"""What `tutor check` grades: exercises and files, in one workspace or in many."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tutor.cli.exercise_view import USAGE, exercise, explained, started, stop, workspace
from tutor.grading.batch import Submission
from tutor.grading.exercise import Exercise, exercise_ids, find_exercise
from tutor.grading.workspace import Workspace


def own(
    ctx: click.Context, idents: tuple[str, ...], all_started: bool, language: str | None = None
) -> list[Submission]:
    """From the learner's own workspace: the named ones, all started ones, or the one changed last."""
    mine = workspace(ctx)
    if not idents and not all_started:
        found = started(ctx)
        if not found:
            stop(f"There is no exercise file in {mine.folder}; `tutor start ID` puts one there.", USAGE)
        return [Submission(found[0][0], found[0][1], "", mine.folder)]
    return submissions([("", mine.folder)], idents, language)


def given(folders: tuple[Path, ...], parent: Path | None) -> list[tuple[str, Path]]:
    """The workspaces of `--workspace` and of `--workspaces`, each with its name."""
    found = [(folder.name or str(folder), folder) for folder in folders]
    if parent is not None:
        subfolders = sorted(path for path in parent.iterdir() if path.is_dir() and path.name[0] != ".")
        if not subfolders:
            stop(f"{parent} has no subfolders; each one would be a workspace.", USAGE)
        found += [(path.name, path) for path in subfolders]
    return found


def submissions(
    workspaces: list[tuple[str, Path]], idents: tuple[str, ...], language: str | None = None
) -> list[Submission]:
    """Every workspace's file of each exercise: the named ones, or those with a file in any of them.

    Of an exercise in several languages the file saved last, unless `language` says which.
    """
    if idents:
        items = [exercise(ident) for ident in dict.fromkeys(idents)]
    else:
        with explained():
            known = [find_exercise(ident) for ident in exercise_ids()]
        items = [item for item in known if any(_there(item, folder) for _, folder in workspaces)]
    if not items:
        where = ", ".join(str(folder) for _, folder in workspaces[:3])
        stop(f"There is no exercise file in {where}; `tutor start ID` puts one there.", USAGE)
    return [_submission(item, name, folder, language) for name, folder in workspaces for item in items]


def _submission(item: Exercise, name: str, folder: Path, language: str | None) -> Submission:
    with explained():
        chosen = item.in_language(language) if language else Workspace(folder).latest(item)
    return Submission(chosen, Workspace(folder).path(chosen), name, folder)


def _there(item: Exercise, folder: Path) -> bool:
    """Also a folder or a broken link in its place: it is to be graded, and refused with a sentence."""
    return any(os.path.lexists(Workspace(folder).path(each)) for each in item.all_languages())
