"""An exercise as its folder describes it: `exercises/ID/exercise.toml` and the files beside it."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

import msgspec

from tutor.curriculum.errors import CourseError
from tutor.curriculum.packs import exercise_folders
from tutor.grading.errors import ExerciseError, UnknownExercise

PYTHON = "python"
SUFFIXES = {PYTHON: ".py", "typescript": ".ts"}
LANGUAGE_NAMES = {PYTHON: "Python", "typescript": "TypeScript"}
FOLDER_FILES = ("exercise.toml", "starter.py", "solution.py", "check.py")
EQUIVALENT_FILE = "equivalent.toml"  # optional: mutations of the solution that no check can notice


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the learner's code may use. The model's own time counts against `total_seconds` only.

    call_seconds: time in the learner's code during one call; total_seconds: time of all calls together,
    callbacks included; memory_mb: address space (2**20 bytes), NumPy included (about 350 of it).
    """

    call_seconds: float = 5.0
    total_seconds: float = 60.0
    memory_mb: int = 1024


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same exercise in another language: its files are in the folder of this name, check.py is shared.

    `statement` and `hints` are those of the exercise unless they are given; hints keep their number.
    """

    file: str
    signatures: tuple[str, ...]
    statement: str = ""
    hints: tuple[str, ...] = ()


class Exercise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`entry` names what the learner's file must define; `signatures` says how, for reading.

    `language` is that of `file`, "python" as it is loaded; `variants` are the other languages, and
    `in_language` and `for_file` give the exercise as it is there, with the same id, checks and limits.

    `extra_files` are further files of the folder that check.py reads with `ctx.file(name)`. `changes` says
    for each version from 2 on what a learner who began with the version before has to do now.
    """

    id: str
    lesson: str
    title: str
    version: int
    file: str
    entry: tuple[str, ...]
    statement: str
    hints: tuple[str, ...]
    signatures: tuple[str, ...] = ()
    limits: Limits = Limits()
    extra_files: tuple[str, ...] = ()
    changes: dict[int, str] = {}
    variants: dict[str, Variant] = {}
    folder: Path = Path()
    language: str = PYTHON

    @property
    def suffix(self) -> str:
        """The end of the names of its files, with the dot."""
        return SUFFIXES[self.language]

    @property
    def files(self) -> Path:
        """The folder of starter, solution and mutants in this language."""
        return self.folder if self.language == PYTHON else self.folder / self.language

    @property
    def starter(self) -> Path:
        return self.files / f"starter{self.suffix}"

    @property
    def solution(self) -> Path:
        return self.files / f"solution{self.suffix}"

    @property
    def check_file(self) -> Path:
        return self.folder / "check.py"

    @property
    def mutants(self) -> tuple[Path, ...]:
        return tuple(sorted((self.files / "mutants").glob(f"*{self.suffix}")))

    @property
    def languages(self) -> tuple[str, ...]:
        """Those it can be done in, Python first."""
        return (PYTHON, *sorted(self.variants))

    def in_language(self, language: str) -> Exercise:
        """This exercise in a language of `languages`; UnknownExercise for another."""
        if language == self.language:
            return self
        if language not in self.languages:
            there_are = " and ".join(self.languages)
            raise UnknownExercise(f"{self.id} is not there in {language}; it is in {there_are}.")
        if language == PYTHON:
            return load_exercise(self.folder)
        variant, python = self.variants[language], self.in_language(PYTHON)
        return msgspec.structs.replace(
            python,
            language=language,
            file=variant.file,
            signatures=variant.signatures,
            statement=variant.statement or python.statement,
            hints=variant.hints or python.hints,
        )

    def all_languages(self) -> tuple[Exercise, ...]:
        """The exercise once in each language, Python first."""
        return tuple(self.in_language(language) for language in self.languages)

    def for_file(self, path: Path) -> Exercise:
        """The exercise in the language that the end of the file's name tells; as it is for any other name."""
        for language in self.languages:
            if path.suffix == SUFFIXES[language]:
                return self.in_language(language)
        return self


def load_exercise(folder: Path) -> Exercise:
    """Read one folder; ExerciseError names the file and what is wrong with it."""
    path = folder / "exercise.toml"
    shown = f"exercises/{folder.name}/exercise.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExerciseError(f"{shown}: cannot be read ({error.strerror}).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExerciseError(f"{shown}: {error}") from error
    try:
        exercise = msgspec.convert({**data, "folder": str(folder)}, Exercise, dec_hook=_path, str_keys=True)
    except msgspec.ValidationError as error:
        raise ExerciseError(f"{shown}: {error}") from error
    _validate(exercise, shown)
    for language, variant in exercise.variants.items():
        _validate_variant(exercise, language, variant, shown)
    return exercise


def _path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(kind)


def _validate(exercise: Exercise, shown: str) -> None:
    limits = exercise.limits
    problems = {
        f"id {exercise.id!r} is not the folder's name": exercise.id != exercise.folder.name,
        f"file {exercise.file!r} is not a plain name ending in .py": (
            Path(exercise.file).name != exercise.file or not exercise.file.endswith(".py")
        ),
        "language is not for the file to say": exercise.language != PYTHON,
        "version starts at 1": exercise.version < 1,
        f"changes names version {max(exercise.changes, default=0)}, the exercise is at {exercise.version}": (
            any(not 2 <= version <= exercise.version for version in exercise.changes)
        ),
        "entry names nothing": not exercise.entry,
        f"entry {exercise.entry} holds something that is no Python name": (
            not all(name.isidentifier() for name in exercise.entry)
        ),
        "a limit is not positive": min(limits.call_seconds, limits.total_seconds, limits.memory_mb) <= 0,
    }
    for problem, present in problems.items():
        if present:
            raise ExerciseError(f"{shown}: {problem}.")


def _validate_variant(exercise: Exercise, language: str, variant: Variant, shown: str) -> None:
    suffix = SUFFIXES.get(language)
    if suffix is None or language == PYTHON:
        raise ExerciseError(f"{shown}: there can be no variant {language!r}.")
    if Path(variant.file).name != variant.file or not variant.file.endswith(suffix):
        raise ExerciseError(f"{shown}: file {variant.file!r} is not a plain name ending in {suffix}.")
    if variant.hints and len(variant.hints) != len(exercise.hints):
        counts = f"{len(variant.hints)} hints, the exercise has {len(exercise.hints)}"
        raise ExerciseError(f"{shown}: the variant {language} has {counts}.")


def exercise_ids(root: Path | None = None) -> tuple[str, ...]:
    """Ids of all exercises under `root` (default: the shipped ones and those of the packs), sorted."""
    return tuple(sorted(_places(_roots(root))))


def find_exercise(name: str, root: Path | None = None) -> Exercise:
    """The exercise with this id, or the one that `renames.toml` maps it to; UnknownExercise suggests."""
    roots = _roots(root)
    known = _places(roots)
    ident = name if name in known else renames(roots).get(name, name)
    if ident not in known:
        near = difflib.get_close_matches(name, known, n=1)
        there_are = f" There are: {', '.join(sorted(known)) or 'none'}."
        way_out = f" Did you mean {near[0]}?" if near else there_are
        raise UnknownExercise(f"There is no exercise {name!r}.{way_out}")
    return load_exercise(known[ident])


def _roots(root: Path | None) -> tuple[Path, ...]:
    if root is not None:
        return (root,)
    try:
        return exercise_folders()
    except CourseError as error:
        raise ExerciseError(str(error)) from error


def _places(roots: tuple[Path, ...]) -> dict[str, Path]:
    """Id to folder. ExerciseError when two packs have an exercise of the same id."""
    found: dict[str, Path] = {}
    for root in roots:
        for path in sorted(root.glob("*/exercise.toml")):
            other = found.setdefault(path.parent.name, path.parent)
            if other != path.parent:
                clash = f"The exercise {path.parent.name!r} is in {other.parent} and in {root}"
                raise ExerciseError(f"{clash}; rename one, or leave one of the packs out.")
    return found


def renames(roots: tuple[Path, ...]) -> dict[str, str]:
    """Old ids of exercises that got a new one: `old = "new"` lines, where the file is there."""
    found: dict[str, str] = {}
    for path in (root / "renames.toml" for root in roots):
        if not path.is_file():
            continue
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ExerciseError(f"exercises/renames.toml: {error}") from error
        found |= {old: str(new) for old, new in data.items()}
    return found
