from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
from tutor.journal.progress import fold


def test_nothing_done() -> None:
    progress = fold(())
    assert progress.done == frozenset()
    assert progress.lesson("paged").times_opened == 0
    assert progress.exercise("paged").attempts == 0


def test_a_lesson_from_opening_to_done() -> None:
    guess = PredictionMade("paged", "q", "8", "9", correct=False, time=12.0)
    events: list[AnyEvent] = [
        LessonOpened("paged", time=10.0),
        SectionReached("paged", "Blocks", time=11.0),
        SectionReached("paged", "Recap", time=11.5),
        SectionReached("paged", "Blocks", time=11.7),
        guess,
        LabRun("paged", "paged", 96, time=13.0),
        ExerciseChecked("paged", "paged", passed=False, failed_checks=("waste", "gather"), time=14.0),
        HintShown("paged", 0, time=15.0),
        HintShown("paged", 1, time=15.0),
        HintShown("paged", 0, time=15.0),
        ExerciseReset("paged", time=16.0),
        ExerciseChecked("paged", "paged", passed=True, time=17.0),
        ExerciseChecked("paged", "paged", passed=False, failed_checks=("waste",), time=18.0),
        SolutionShown("paged", time=19.0),
        LessonOpened("paged", time=20.0),
    ]
    progress = fold(events)
    lesson = progress.lesson("paged")
    assert (lesson.first_opened, lesson.last_seen, lesson.times_opened) == (10.0, 20.0, 2)
    assert lesson.sections == ("Blocks", "Recap")
    assert lesson.predictions == (guess,)
    assert lesson.lab_runs == 1
    assert (lesson.done, lesson.done_at) == (True, 17.0)

    exercise = progress.exercise("paged")
    assert (exercise.attempts, exercise.attempts_until_pass) == (3, 2)
    assert (exercise.passed, exercise.last_passed) == (True, False)
    assert exercise.last_failed_checks == ("waste",)
    assert (exercise.hints, exercise.resets) == (2, 1)
    assert (exercise.solution_shown, exercise.solution_before_pass) == (True, False)
    assert progress.done == {"paged"}
    assert progress.num_events == len(events)


def test_only_a_passed_exercise_makes_a_lesson_done() -> None:
    events: list[AnyEvent] = [
        LessonOpened("a"),
        PredictionMade("a", "q", "1", "1", correct=True),
        LabRun("a", "paged", 3),
        SolutionShown("a"),
        ExerciseChecked("a", "a", passed=False),
    ]
    assert fold(events).done == frozenset()
    assert fold(events).exercise("a").solution_before_pass


def test_an_exercise_may_have_another_name_than_its_lesson() -> None:
    progress = fold([ExerciseChecked("codec", "kv-compress", passed=True)])
    assert progress.done == {"kv-compress"}
    assert progress.exercise("codec").passed
    assert not progress.exercise("kv-compress").passed


_EVENTS = st.lists(
    st.one_of(
        st.builds(LessonOpened, st.sampled_from("ab"), time=st.floats(1, 9)),
        st.builds(ExerciseChecked, st.sampled_from("ab"), st.sampled_from("ab"), st.booleans()),
        st.builds(HintShown, st.sampled_from("ab"), st.integers(0, 3)),
        st.builds(SolutionShown, st.sampled_from("ab")),
    )
)


@given(_EVENTS, st.data())
def test_an_event_counts_once_however_often_it_comes(events: list[AnyEvent], data: st.DataObject) -> None:
    """Journals of two machines may be put together in any overlap."""
    extra = data.draw(st.lists(st.sampled_from(events))) if events else []
    assert fold([*events, *extra]) == fold(events)
