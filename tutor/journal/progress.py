"""Folds the journal into progress. Nothing here is stored: the same events give the same progress."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tutor.journal.events import (
    AnyEvent,
    ExerciseChecked,
    ExerciseReset,
    HintShown,
    LabRun,
    LessonOpened,
    PredictionMade,
    SectionReached,
    SolutionShown,
)


class LessonProgress(msgspec.Struct, frozen=True):
    """What was done in one lesson. Times are seconds since 1970 UTC; 0.0 = never."""

    lesson: str
    first_opened: float = 0.0
    last_seen: float = 0.0
    times_opened: int = 0
    sections: tuple[str, ...] = ()  # in the order they were first reached
    predictions: tuple[PredictionMade, ...] = ()
    lab_runs: int = 0
    done: bool = False  # its exercise has passed at least once
    done_at: float = 0.0


class ExerciseProgress(msgspec.Struct, frozen=True):
    """What was done in one exercise. `hints` is how many are open."""

    exercise: str
    attempts: int = 0
    passed: bool = False  # ever
    last_passed: bool = False
    last_failed_checks: tuple[str, ...] = ()
    attempts_until_pass: int = 0  # 0 = not passed yet
    hints: int = 0
    solution_shown: bool = False
    solution_before_pass: bool = False
    resets: int = 0


class Progress(msgspec.Struct, frozen=True):
    """All that the journal tells, by lesson id and by exercise id."""

    lessons: dict[str, LessonProgress] = {}
    exercises: dict[str, ExerciseProgress] = {}
    num_events: int = 0

    def lesson(self, id: str) -> LessonProgress:
        return self.lessons.get(id) or LessonProgress(id)

    def exercise(self, id: str) -> ExerciseProgress:
        return self.exercises.get(id) or ExerciseProgress(id)

    @property
    def done(self) -> frozenset[str]:
        """Ids of the lessons whose exercise has passed."""
        return frozenset(id for id, lesson in self.lessons.items() if lesson.done)


def fold(events: Iterable[AnyEvent]) -> Progress:
    """Progress after these events, in this order. An event id that comes twice counts once."""
    lessons: dict[str, LessonProgress] = {}
    exercises: dict[str, ExerciseProgress] = {}
    seen: set[str] = set()
    for event in events:
        if event.id in seen:
            continue
        seen.add(event.id)
        if isinstance(event, LessonOpened | SectionReached | PredictionMade | LabRun | ExerciseChecked):
            before = lessons.get(event.lesson) or LessonProgress(event.lesson)
            lessons[event.lesson] = _lesson_after(before, event)
        if isinstance(event, ExerciseChecked | HintShown | SolutionShown | ExerciseReset):
            known = exercises.get(event.exercise) or ExerciseProgress(event.exercise)
            exercises[event.exercise] = _exercise_after(known, event)
    return Progress(lessons, exercises, len(seen))


def _lesson_after(
    lesson: LessonProgress,
    event: LessonOpened | SectionReached | PredictionMade | LabRun | ExerciseChecked,
) -> LessonProgress:
    replace = msgspec.structs.replace
    # Clocks differ between machines; a merged journal must not move a date back.
    lesson = replace(lesson, last_seen=max(lesson.last_seen, event.time))
    match event:
        case LessonOpened():
            first = min(lesson.first_opened or event.time, event.time)
            return replace(lesson, first_opened=first, times_opened=lesson.times_opened + 1)
        case SectionReached() if event.section not in lesson.sections:
            return replace(lesson, sections=(*lesson.sections, event.section))
        case PredictionMade():
            return replace(lesson, predictions=(*lesson.predictions, event))
        case LabRun():
            return replace(lesson, lab_runs=lesson.lab_runs + 1)
        case ExerciseChecked() if event.passed and not lesson.done:
            return replace(lesson, done=True, done_at=event.time)
    return lesson


def _exercise_after(
    known: ExerciseProgress, event: ExerciseChecked | HintShown | SolutionShown | ExerciseReset
) -> ExerciseProgress:
    replace = msgspec.structs.replace
    match event:
        case ExerciseChecked():
            attempts = known.attempts + 1
            first_pass = attempts if event.passed and not known.passed else known.attempts_until_pass
            return replace(
                known,
                attempts=attempts,
                passed=known.passed or event.passed,
                last_passed=event.passed,
                last_failed_checks=event.failed_checks,
                attempts_until_pass=first_pass,
            )
        case HintShown():
            return replace(known, hints=max(known.hints, event.index + 1))
        case SolutionShown():
            before = known.solution_before_pass or not known.passed
            return replace(known, solution_shown=True, solution_before_pass=before)
        case ExerciseReset():
            return replace(known, resets=known.resets + 1)
