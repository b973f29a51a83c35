"""Finds and reads the lessons. Opening the course reads the `lesson.toml` files only; text, quiz and
lab of a lesson are read when the lesson is opened.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tutor.curriculum.dag import Course, stages
from tutor.curriculum.errors import CourseError
from tutor.curriculum.packs import content_folders
from tutor.curriculum.schema import (
    ChoiceSpec,
    LabSpec,
    Lesson,
    LessonFile,
    NumberSpec,
    Question,
    QuizFile,
    Values,
)
from tutor.curriculum.toml_file import line_of, read_text, read_toml

if TYPE_CHECKING:
    from tutor.curriculum.render import LessonText

_FOLDER = re.compile(r"(\d{2})-([a-z0-9]+(?:-[a-z0-9]+)*)")


def load_course(folder: Path | None = None) -> Course:
    """All lessons below `folder`; without it the shipped ones and those of the packs. Raises CourseError.

    The numbers of a pack order its own lessons; in the course they go on after those before it.
    """
    read: list[tuple[Path, int, LessonFile]] = []
    for content in content_folders() if folder is None else (folder,):
        last = max((number for _, number, _ in read), default=0)
        read += [(path, last + int(n), _lesson_file(path, id)) for path, n, id in _lesson_folders(content)]
    _check_names(read)
    needs = {file.id: file.needs for _, _, file in read}
    _check_needs(read, needs)
    stage = stages(needs)
    unlocks: dict[str, list[str]] = {id: [] for id in needs}
    for id, wanted in needs.items():
        for need in wanted:
            unlocks[need].append(id)
    return Course([_lesson(path, number, file, stage, unlocks) for path, number, file in read])


def read_lesson(lesson: Lesson) -> LessonText:
    """The lesson's text with its numbers computed. Raises CourseError (file, line)."""
    if not lesson.written:
        raise CourseError(f"The lesson {lesson.id} is not written yet. `tutor list` shows which ones are.")
    path = lesson.folder / "lesson.md"
    from tutor.curriculum.render import render_file, split_sections  # not needed to paint the map

    return split_sections(render_file(path), path)


def read_quiz(lesson: Lesson) -> tuple[Question, ...]:
    """The lesson's questions; none when it has no quiz. Raises CourseError (file, line)."""
    path = lesson.folder / "quiz.toml"
    if not path.exists():
        return ()
    specs = read_toml(path, QuizFile).question
    seen: set[str] = set()
    for index, spec in enumerate(specs):
        fault = _question_fault(spec, seen)
        if fault:
            raise CourseError(fault[1], path, line_of(read_text(path), fault[0], ("question", index)))
        seen.add(spec.id)
    return tuple(
        Question(
            lesson=lesson.id,
            id=spec.id,
            kind="number" if isinstance(spec, NumberSpec) else "choice",
            spec=spec,
            folder=lesson.folder,
        )
        for spec in specs
    )


def read_lab(lesson: Lesson) -> LabSpec | None:
    """What the lesson's lab is; None when it has none. Raises CourseError (file, line)."""
    path = lesson.folder / "lab.toml"
    if not path.exists():
        return None
    lab = read_toml(path, LabSpec)
    known = {question.id for question in read_quiz(lesson)}
    for id in lab.predict:
        if id not in known:
            line = line_of(read_text(path), "predict")
            raise CourseError(f"predict names {id!r}, which quiz.toml does not have", path, line)
    return lab


# --- lesson.toml --------------------------------------------------------------------------------


def _lesson_folders(folder: Path) -> list[tuple[Path, str, str]]:
    try:
        entries = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise CourseError(f"the lessons cannot be read: {error.strerror} ({folder})") from None
    found = []
    for path in entries:
        if path.name.startswith((".", "__")):
            continue
        match = _FOLDER.fullmatch(path.name)
        if match is None:
            raise CourseError("a lesson's folder is called NN-lesson-id, such as 07-kv-cache", path)
        found.append((path, match.group(1), match.group(2)))
    if not found:
        raise CourseError(f"there are no lessons in {folder}")
    return found


def _lesson_file(folder: Path, id: str) -> LessonFile:
    path = folder / "lesson.toml"
    file = read_toml(path, LessonFile)
    problem = None
    if file.id != id:
        problem = ("id", f"the id is {file.id!r}, the folder says {id!r}")
    elif len(set(file.needs)) != len(file.needs):
        problem = ("needs", "a need is listed twice")
    elif not file.objectives:
        problem = ("objectives", "a lesson has at least one objective")
    elif not 0 <= file.difficulty <= 5:
        problem = ("difficulty", f"difficulty goes from 1 to 5, got {file.difficulty}")
    elif file.minutes < 1:
        problem = ("minutes", f"minutes must be at least 1, got {file.minutes}")
    if problem:
        raise CourseError(problem[1], path, line_of(read_text(path), problem[0]))
    return file


def _check_names(read: list[tuple[Path, int, LessonFile]]) -> None:
    """Ids, aliases and titles share one namespace: each must lead to one lesson."""
    owner: dict[str, tuple[Path, str]] = {}
    numbers: dict[int, str] = {}
    for folder, number, file in read:
        path = folder / "lesson.toml"
        if number in numbers:
            raise CourseError(f"number {folder.name[:2]} is taken by {numbers[number]!r}", path)
        numbers[number] = file.id
        for key, names in (("id", (file.id,)), ("aliases", file.aliases), ("title", (file.title,))):
            for name in names:
                taken_by, other = owner.setdefault(name.casefold(), (folder, file.id))
                if taken_by != folder:
                    line = line_of(read_text(path), key)
                    reason = f"the name {name!r} is already taken by lesson {other!r}"
                    raise CourseError(reason + _elsewhere(folder, taken_by), path, line)


def _elsewhere(folder: Path, other: Path) -> str:
    """Which two folders clash, and the way out, when they come from different packs."""
    if folder.parent == other.parent:
        return ""
    return f" in {other.parent}; rename it in {folder.parent}, or leave one of the packs out"


def _check_needs(read: list[tuple[Path, int, LessonFile]], known: dict[str, tuple[str, ...]]) -> None:
    for folder, _, file in read:
        for need in file.needs:
            if need not in known:
                path = folder / "lesson.toml"
                line = line_of(read_text(path), "needs")
                raise CourseError(f"needs {need!r}, which is no lesson", path, line)


def _lesson(
    folder: Path, number: int, file: LessonFile, stage: dict[str, int], unlocks: dict[str, list[str]]
) -> Lesson:
    return Lesson(
        id=file.id,
        title=file.title,
        aliases=file.aliases,
        line=file.line,
        needs=file.needs,
        objectives=file.objectives,
        minutes=file.minutes,
        written=(folder / "lesson.md").is_file(),
        folder=folder,
        number=number,
        stage=stage[file.id],
        unlocks=tuple(unlocks[file.id]),
        difficulty=file.difficulty,
    )


# --- quiz.toml ----------------------------------------------------------------------------------


def _question_fault(spec: NumberSpec | ChoiceSpec, seen: set[str]) -> tuple[str, str] | None:
    """(key, reason) of what the types alone cannot say, or None."""
    if spec.id in seen:
        return "id", f"the question id {spec.id!r} is used twice"
    for name, param in spec.params.items():
        if not name.isidentifier() or name == "answer":
            return "params", f"{name!r} cannot be the name of a param"
        values = param.values if isinstance(param, Values) else param
        if not values:
            return "params", f"{name} has no values"
        if isinstance(param, tuple) and not all(isinstance(value, str) for value in param):
            low_high = [value for value in param if isinstance(value, int)]
            if len(param) != 2 or len(low_high) != 2 or low_high[0] > low_high[1]:
                return "params", f"{name} must be [low, high], a list of strings or {{ values = [...] }}"
    if isinstance(spec, ChoiceSpec):
        if len(spec.choices) < 2:
            return "choices", "a choice needs at least two texts"
        if sum(choice.correct for choice in spec.choices) != 1:
            return "choices", "exactly one choice must be correct"
    elif spec.tolerance < 0:
        return "tolerance", "the tolerance must not be negative"
    return None
