"""Whether a lesson's lab.toml names a lab that exists, with knobs that it takes."""

from __future__ import annotations

from tutor.curriculum.errors import CourseError
from tutor.curriculum.loader import read_lab
from tutor.curriculum.schema import Lesson
from tutor.labs.registry import UnknownLab, get_kind
from tutor.labs.scenario import KnobError


def lab_problems(lesson: Lesson) -> tuple[str, ...]:
    """What is wrong with the lesson's lab, beyond what its own file says; empty without a lab."""
    try:
        lab = read_lab(lesson)
        if lab is not None:
            get_kind(lab.kind).settings(lab.knobs)
    except CourseError:
        return ()  # lint_course reports it, with its line
    except (UnknownLab, KnobError) as error:
        return (f"lab.toml: {error}",)
    return ()
