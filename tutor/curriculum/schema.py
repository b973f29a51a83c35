"""What the files of a lesson folder may hold. Unknown keys and wrong types are errors.

`lesson.toml` → LessonFile → Lesson; `quiz.toml` → QuizFile → Question; `lab.toml` → LabSpec.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

Scalar = int | float | str | bool


class LessonFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """lesson.toml as written. The stage is not in it: it follows from `needs`."""

    id: str
    title: str
    line: str
    objectives: tuple[str, ...]
    minutes: int
    aliases: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    difficulty: int = 0  # 1 (easy) to 5 (hard); 0: not said


class Lesson(msgspec.Struct, frozen=True):
    """A lesson in its place in the course. `stage` is 1 + the longest path from a root."""

    id: str
    title: str
    aliases: tuple[str, ...]
    line: str
    needs: tuple[str, ...]
    objectives: tuple[str, ...]
    minutes: int
    written: bool
    folder: Path
    number: int
    stage: int
    unlocks: tuple[str, ...]
    difficulty: int = 0


# --- quiz.toml ----------------------------------------------------------------------------------


class Values(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of these is chosen on each try."""

    values: tuple[int | float | str, ...]


# [low, high] = a whole number of this range, both ends included; [str, ...] = one of them
Param = tuple[int | str, ...] | Values


class WrongAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A common wrong answer: an expression like `answer`, and what to say to who gives it."""

    answer: str
    why: str


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    why: str
    correct: bool = False


class NumberSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="number"):
    """Asks for a number. `answer` is an expression over the params and the formulas."""

    id: str
    ask: str
    answer: str
    explain: str
    params: dict[str, Param] = {}
    unit: str = ""
    tolerance: float = 0.0
    wrong: tuple[WrongAnswer, ...] = ()


class ChoiceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="choice"):
    """Asks for one of several texts; they are shuffled on each try unless `shuffle` is false."""

    id: str
    ask: str
    choices: tuple[Choice, ...]
    explain: str = ""
    params: dict[str, Param] = {}
    shuffle: bool = True


class QuizFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: tuple[NumberSpec | ChoiceSpec, ...] = ()


class Question(msgspec.Struct, frozen=True):
    """A question of a lesson, as `tutor.curriculum.quiz.instantiate` takes it. `kind`: number or choice."""

    lesson: str
    id: str
    kind: str
    spec: NumberSpec | ChoiceSpec
    folder: Path


# --- lab.toml -----------------------------------------------------------------------------------


class LabSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lab a lesson opens, what to look at in it, and what to predict first."""

    kind: str
    title: str
    phenomenon: str
    watch: tuple[str, ...]
    knobs: dict[str, Scalar] = {}
    predict: tuple[str, ...] = ()
