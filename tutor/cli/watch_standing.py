"""What `tutor watch` knows of the learner: exercises in course order, what is passed, what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from tutor.curriculum.dag import Course
from tutor.curriculum.mastery import lesson_states
from tutor.grading.exercise import Exercise
from tutor.journal.events import AnyEvent
from tutor.journal.progress import ExerciseProgress, Progress, fold
from tutor.journal.store import Journal, JournalError


class Standing:
    """The journal is read once; what happens from then on is added here and there.

    `problem` is a sentence when the journal cannot be read or written; this session goes on without it.
    """

    def __init__(self, course: Course, exercises: Sequence[Exercise], journal: Journal) -> None:
        place = {ident: number for number, ident in enumerate(course.order)}
        self.exercises = sorted(exercises, key=lambda item: (place.get(item.lesson, len(place)), item.id))
        self.problem = ""
        self._course = course
        self._journal = journal
        self._events: list[AnyEvent] = []
        self._progress: Progress | None = None
        try:
            self._events += journal.read().events
        except JournalError as error:
            self.problem = str(error)

    def record(self, event: AnyEvent) -> None:
        """Append to the journal. It counts for this session, also when it cannot be written."""
        self._events.append(event)
        self._progress = None
        try:
            self._journal.append(event)
        except JournalError as error:
            self.problem = f"Not recorded: {error}"

    def of(self, exercise: Exercise) -> ExerciseProgress:
        if self._progress is None:
            self._progress = fold(self._events)
        return self._progress.exercise(exercise.id)

    @property
    def num_passed(self) -> int:
        return sum(self.of(item).passed for item in self.exercises)

    def next(self, after: Exercise | None = None) -> Exercise | None:
        """The next one in course order that is not passed, from the start again after the last.

        One whose lesson is still locked comes only when no other is left; `after` itself never does.
        """
        names = [item.id for item in self.exercises]
        start = names.index(after.id) + 1 if after is not None else 0
        turned = self.exercises[start:] + self.exercises[:start]
        here = after.id if after is not None else ""
        left = [item for item in turned if item.id != here and not self.of(item).passed]
        states = lesson_states(self._course, fold(self._events))
        locked = {ident for ident, state in states.items() if state.status == "locked"}
        return next((item for item in left if item.lesson not in locked), left[0] if left else None)
