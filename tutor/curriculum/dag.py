"""The course as a graph: stages, what a lesson unlocks, the path to a lesson.

graphlib of the standard library sorts and finds cycles, since the import of networkx alone would take as
long as the rest of the start. `lint.py` computes the stages with networkx and compares.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from tutor.curriculum.errors import CourseError, UnknownLesson
from tutor.curriculum.schema import Lesson


def topological(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids with every lesson after its needs. Raises CourseError that names the cycle."""
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        cycle = error.args[1]  # graphlib lists it with each node before one that needs it
        raise CourseError(f"the lessons' needs form a cycle: {' → '.join(cycle)}") from None


def stages(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Stage of every lesson: 1 + the longest path from a lesson without needs."""
    stage: dict[str, int] = {}
    for id in topological(needs):
        stage[id] = 1 + max((stage[need] for need in needs[id]), default=0)
    return stage


class Course:
    """All lessons in the order of their numbers. Immutable."""

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        self.lessons = tuple(lessons)
        self._by_id = {lesson.id: lesson for lesson in lessons}
        self._by_name = {name.casefold(): lesson for lesson in lessons for name in _names(lesson)}

    def __iter__(self) -> Iterator[Lesson]:
        return iter(self.lessons)

    def __len__(self) -> int:
        return len(self.lessons)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def __getitem__(self, id: str) -> Lesson:
        """The lesson with exactly this id. Raises UnknownLesson."""
        return self._by_id[id] if id in self._by_id else self.find(id)

    def find(self, name: str) -> Lesson:
        """The lesson with this id, alias or title, in any case. Raises UnknownLesson with the nearest id."""
        wanted = name.strip().casefold()
        if wanted in self._by_name:
            return self._by_name[wanted]
        near = difflib.get_close_matches(wanted, self._by_name, n=1, cutoff=0.6)
        raise UnknownLesson(name, self._by_name[near[0]].id if near else None)

    @property
    def order(self) -> tuple[str, ...]:
        """Ids, every lesson after what it needs: by stage, then by number."""
        return tuple(lesson.id for lesson in sorted(self.lessons, key=lambda x: (x.stage, x.number)))

    def stage(self, id: str) -> int:
        return self[id].stage

    def unlocks(self, id: str) -> tuple[str, ...]:
        """Lessons that need this one directly, in course order."""
        return self[id].unlocks

    def path_to(self, id: str) -> tuple[str, ...]:
        """Everything that has to be done for this lesson, directly or not, then the lesson itself."""
        wanted = {id}
        open_ids = [id]
        while open_ids:
            fresh = [need for need in self[open_ids.pop()].needs if need not in wanted]
            wanted.update(fresh)
            open_ids.extend(fresh)
        return tuple(x for x in self.order if x in wanted)


def _names(lesson: Lesson) -> tuple[str, ...]:
    return (lesson.id, *lesson.aliases, lesson.title)
