"""What the learner did, as frozen records. The journal is the only place where progress is kept.

Every event has an `id` of its own, so that two journals can be merged without counting twice, and
`time`: seconds since 1970 UTC by this machine's clock. Both are set when the event is made.
"""

from __future__ import annotations

import os
import time as clock

import msgspec

SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Base of all events; the JSON field `type` holds the class name."""

    id: str = msgspec.field(default_factory=lambda: os.urandom(8).hex())
    time: float = msgspec.field(default_factory=clock.time)


class LessonOpened(Event, frozen=True):
    lesson: str


class SectionReached(Event, frozen=True):
    """The learner came to this `## ` section, or to one of the tabs."""

    lesson: str
    section: str


class PredictionMade(Event, frozen=True):
    """An answer to a question; `answer` and `expected` as shown, with their unit."""

    lesson: str
    question: str
    answer: str
    expected: str
    correct: bool


class LabRun(Event, frozen=True):
    """A lab ran for `steps` steps; `kind` as in lab.toml."""

    lesson: str
    kind: str
    steps: int


class ExerciseChecked(Event, frozen=True):
    """A verdict on the learner's file. `failed_checks` names the checks that did not pass."""

    exercise: str
    lesson: str
    passed: bool
    failed_checks: tuple[str, ...] = ()


class HintShown(Event, frozen=True):
    """`index` counts from 0."""

    exercise: str
    index: int


class SolutionShown(Event, frozen=True):
    exercise: str


class ExerciseReset(Event, frozen=True):
    exercise: str


AnyEvent = (
    LessonOpened
    | SectionReached
    | PredictionMade
    | LabRun
    | ExerciseChecked
    | HintShown
    | SolutionShown
    | ExerciseReset
)


class JournalHeader(msgspec.Struct, frozen=True):
    """First line of the journal file."""

    journal: str
    schema: int
