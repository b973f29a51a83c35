"""Stages and paths, cross-checked with networkx on random graphs; the learner's states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from tutor.curriculum.dag import Course, stages
from tutor.curriculum.loader import load_course
from tutor.curriculum.mastery import lesson_states
from tutor.curriculum.schema import Lesson
from tutor.journal.events import ExerciseChecked, LessonOpened, PredictionMade
from tutor.journal.progress import Progress, fold

Write = Callable[..., Path]


@st.composite
def _graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Needs of up to 12 lessons; each may need any earlier one, so there is no cycle."""
    ids = [f"l{n}" for n in range(draw(st.integers(1, 12)))]
    return {
        id: tuple(draw(st.lists(st.sampled_from(ids[:n]), unique=True))) if n else ()
        for n, id in enumerate(ids)
    }


def _course(needs: dict[str, tuple[str, ...]], written: set[str] | None = None) -> Course:
    stage = stages(needs)
    return Course(
        [
            Lesson(
                id=id,
                title=id.upper(),
                aliases=(),
                line="",
                needs=wanted,
                objectives=("x",),
                minutes=1,
                written=written is None or id in written,
                folder=Path(id),
                number=number,
                stage=stage[id],
                unlocks=tuple(other for other, others in needs.items() if id in others),
            )
            for number, (id, wanted) in enumerate(needs.items(), 1)
        ]
    )


def _digraph(needs: dict[str, tuple[str, ...]]) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(needs)
    graph.add_edges_from((need, id) for id, wanted in needs.items() for need in wanted)
    return graph


@given(_graphs())
def test_stages_are_longest_paths(needs: dict[str, tuple[str, ...]]) -> None:
    layers = nx.topological_generations(_digraph(needs))
    assert stages(needs) == {id: n for n, layer in enumerate(layers, 1) for id in layer}


@given(_graphs())
def test_the_path_is_all_ancestors_in_an_order_that_works(needs: dict[str, tuple[str, ...]]) -> None:
    course = _course(needs)
    graph = _digraph(needs)
    for id in needs:
        path = course.path_to(id)
        assert set(path) == nx.ancestors(graph, id) | {id}
        assert path[-1] == id
        for index, step in enumerate(path):
            assert set(needs[step]) <= set(path[:index])


def _passed(*ids: str) -> Progress:
    return fold(ExerciseChecked(id, id, passed=True) for id in ids)


@given(_graphs(), st.data())
def test_no_state_is_a_dead_end(needs: dict[str, tuple[str, ...]], data: st.DataObject) -> None:
    """Whatever is written and done, something can be done next until all that is written is done."""
    ids = list(needs)
    written = set(data.draw(st.lists(st.sampled_from(ids), unique=True)))
    done = set(data.draw(st.lists(st.sampled_from(ids), unique=True)))
    course = _course(needs, written)
    states = lesson_states(course, _passed(*done))
    assert list(states) == list(course.order)
    left = written - done
    assert bool(left) == any(state.status == "ready" for state in states.values())
    for id, state in states.items():
        if state.status == "locked" and state.written:
            assert state.missing
        for need in state.missing:
            assert need in left  # only lessons that can be read and are not done
            assert need in course.path_to(id)


def test_unlocks(write_course: Write) -> None:
    course = load_course(write_course({"a": [], "b": ["a"], "c": ["a", "b"]}))
    assert course.unlocks("a") == ("b", "c")
    assert course["b"].unlocks == ("c",)
    assert course.stage("c") == 3
    assert "a" in course
    assert "z" not in course
    assert len(course) == 3


def test_names_find_a_lesson_in_any_case(write_course: Write) -> None:
    course = load_course(write_course({"a": [], "kv-cache": []}))
    assert course.find(" KV-Cache ").id == "kv-cache"


def test_states_from_locked_to_done() -> None:
    course = _course({"a": (), "b": ("a",), "c": ("a", "b")})
    before = lesson_states(course, fold(()))
    assert [state.status for state in before.values()] == ["ready", "locked", "locked"]
    assert before["c"].missing == ("a", "b")

    opened = lesson_states(course, fold([LessonOpened("a")]))
    assert opened["a"].status == "in_progress"
    guessed = lesson_states(course, fold([PredictionMade("a", "q", "1", "2", correct=False)]))
    assert guessed["a"].status == "in_progress"

    failed = lesson_states(course, fold([ExerciseChecked("a", "a", passed=False)]))
    assert [failed["a"].status, failed["b"].status] == ["in_progress", "locked"]

    passed = lesson_states(course, _passed("a"))
    assert [passed["a"].status, passed["b"].status] == ["done", "ready"]
    assert passed["c"].missing == ("b",)


def test_testing_out_does_not_need_what_comes_before() -> None:
    course = _course({"a": (), "b": ("a",), "c": ("b",)})
    states = lesson_states(course, _passed("b"))
    assert [state.status for state in states.values()] == ["ready", "done", "ready"]


def test_reading_a_locked_lesson_does_not_unlock_it() -> None:
    course = _course({"a": (), "b": ("a",)})
    assert lesson_states(course, fold([LessonOpened("b")]))["b"].status == "locked"


def test_an_unwritten_need_does_not_block() -> None:
    course = _course({"a": (), "b": ("a",), "c": ("b",)}, written={"a", "c"})
    before = lesson_states(course, fold(()))
    assert before["b"].status == "locked"
    assert not before["b"].written
    assert before["c"].missing == ("a",)  # not b, which nobody can do
    assert before["c"].open_needs == ("b",)
    after = lesson_states(course, _passed("a"))
    assert after["c"].status == "ready"
    assert after["b"].status == "locked"


def test_what_is_behind_an_unwritten_need_is_named_once() -> None:
    needs = {"a": (), "b": ("a",), "gap": ("a",), "d": ("b", "gap")}
    states = lesson_states(_course(needs, written={"a", "b", "d"}), fold(()))
    assert states["d"].missing == ("b",)  # b needs a, so a need not be named again
