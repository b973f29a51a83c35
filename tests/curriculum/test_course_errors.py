"""What is wrong with a course is said with file, line and reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tutor.curriculum.errors import CourseError, UnknownLesson
from tutor.curriculum.loader import load_course, read_lab, read_lesson, read_quiz

Write = Callable[..., Path]

QUESTION = """
[[question]]
id = "first"
kind = "number"
ask = "?"
answer = "1"
explain = "One."
"""


def _fails(folder: Path) -> str:
    with pytest.raises(CourseError) as caught:
        load_course(folder)
    return str(caught.value)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_cycle_is_named(write_course: Write) -> None:
    message = _fails(write_course({"a": ["c"], "b": ["a"], "c": ["b"], "d": []}))
    names = re.findall(r"\b[abcd]\b(?= →|$)", message)
    assert len(names) == 4
    assert names[0] == names[-1]
    assert set(names) == {"a", "b", "c"}
    needs = {"a": "c", "b": "a", "c": "b"}
    assert all(needs[after] == before for before, after in itertools.pairwise(names))


def test_a_lesson_that_needs_itself(write_course: Write) -> None:
    assert "cycle: a → a" in _fails(write_course({"a": ["a"]}))


def test_a_missing_need(write_course: Write) -> None:
    message = _fails(write_course({"a": [], "b": ["nope"]}))
    assert message == "content/02-b/lesson.toml:5: needs 'nope', which is no lesson"


def test_a_need_listed_twice(write_course: Write) -> None:
    assert "lesson.toml:5: a need is listed twice" in _fails(write_course({"a": [], "b": ["a", "a"]}))


def test_a_duplicate_id(write_course: Write) -> None:
    folder = write_course({"a": [], "b": []})
    (folder / "02-b").rename(folder / "02-a")
    _edit(folder / "02-a" / "lesson.toml", '"b"', '"a"')
    message = _fails(folder)
    assert message.startswith("content/02-a/lesson.toml:1: ")
    assert "'a'" in message
    assert "taken" in message


def test_a_duplicate_alias(write_course: Write) -> None:
    folder = write_course({"a": [], "b": []})
    _edit(folder / "01-a" / "lesson.toml", "aliases = []", 'aliases = ["Other"]')
    _edit(folder / "02-b" / "lesson.toml", "aliases = []", 'aliases = ["other"]')
    assert _fails(folder) == "content/02-b/lesson.toml:3: the name 'other' is already taken by lesson 'a'"


def test_an_alias_that_is_another_lessons_id(write_course: Write) -> None:
    folder = write_course({"a": [], "b": []})
    _edit(folder / "02-b" / "lesson.toml", "aliases = []", 'aliases = ["a"]')
    assert "02-b/lesson.toml:3: the name 'a' is already taken" in _fails(folder)


def test_a_duplicate_number(write_course: Write) -> None:
    folder = write_course({"a": [], "b": []})
    (folder / "02-b").rename(folder / "01-b")
    assert "number 01 is taken by 'a'" in _fails(folder)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("minutes = 10", "minutes = = 10", 6, "Invalid value"),
        ("minutes = 10", 'minutes = "10"', 6, "Expected `int`, got `str`"),
        ("minutes = 10", "minutes = 0", 6, "at least 1"),
        ("minutes = 10", "minuets = 10", 6, "unknown key `minuets`"),
        ('line = "About a."\n', "", 1, "missing key `line`"),
        ('objectives = ["Know it."]', "objectives = [3]", 7, "Expected `str`, got `int`"),
        ('objectives = ["Know it."]', "objectives = []", 7, "at least one objective"),
        ('id = "a"', 'id = "b"', 1, "the folder says 'a'"),
    ],
)
def test_a_bad_lesson_toml(write_course: Write, old: str, new: str, line: int, reason: str) -> None:
    folder = write_course({"a": []})
    _edit(folder / "01-a" / "lesson.toml", old, new)
    message = _fails(folder)
    assert message.startswith(f"content/01-a/lesson.toml:{line}: ")
    assert reason in message


def test_a_stage_cannot_be_typed(write_course: Write) -> None:
    folder = write_course({"a": []})
    _edit(folder / "01-a" / "lesson.toml", "minutes", "stage = 1\nminutes")
    assert "lesson.toml:6: unknown key `stage`" in _fails(folder)


def test_a_file_that_is_not_utf8(write_course: Write) -> None:
    folder = write_course({"a": []})
    (folder / "01-a" / "lesson.toml").write_bytes(b'id = "\xff"\n')
    assert "not UTF-8" in _fails(folder)


def test_a_folder_without_lesson_toml(write_course: Write) -> None:
    folder = write_course({"a": []})
    (folder / "02-b").mkdir()
    assert _fails(folder) == "content/02-b/lesson.toml: the file is missing"


def test_a_folder_with_a_wrong_name(write_course: Write) -> None:
    folder = write_course({"a": []})
    (folder / "b").mkdir()
    assert _fails(folder).startswith("content/b: a lesson's folder is called NN-lesson-id")


def test_no_lessons_at_all(tmp_path: Path) -> None:
    assert "no lessons" in _fails(tmp_path)
    assert "cannot be read" in _fails(tmp_path / "nowhere")


def test_an_unknown_lesson_suggests_the_nearest(write_course: Write) -> None:
    course = load_course(write_course({"paged": [], "prefix": []}))
    with pytest.raises(UnknownLesson, match="Did you mean paged"):
        course.find("pagde")
    with pytest.raises(UnknownLesson) as caught:
        course["zzzzzz"]
    assert caught.value.suggestion is None


# --- lesson.md, quiz.toml, lab.toml ---------------------------------------------------------------


def _one(write_course: Write, **files: str) -> Path:
    folder = write_course({"a": []}, written=["a"])
    for name, text in files.items():
        (folder / "01-a" / name.replace("_", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{{ nonsense }}", "'nonsense' is undefined"),
        ("{{ kv_bytes('gpt-9', 3) }}", "unknown model 'gpt-9'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ measured('x') }}", "measured.toml has no 'x'"),
        ("{% if %}", "Expected an expression"),
        ("{{ 3 | furlongs }}", "No filter named 'furlongs'"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_bad_template_names_its_line(write_course: Write, line: str, reason: str) -> None:
    lesson = load_course(_one(write_course, lesson_md=f"## A\n\ntext\n{line}\n\n## Recap\n"))["a"]
    with pytest.raises(CourseError) as caught:
        read_lesson(lesson)
    assert str(caught.value).startswith("content/01-a/lesson.md:4: template: ")
    assert reason in str(caught.value)


def test_a_lesson_ends_with_its_recap(write_course: Write) -> None:
    lesson = load_course(_one(write_course, lesson_md="## Recap\n\nx\n\n## More\n"))["a"]
    with pytest.raises(CourseError, match=r"lesson.md:5: the last section must be `## Recap`"):
        read_lesson(lesson)


def test_an_unwritten_lesson(write_course: Write) -> None:
    lesson = load_course(write_course({"a": []}))["a"]
    assert not lesson.written
    with pytest.raises(CourseError, match="not written yet"):
        read_lesson(lesson)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('kind = "number"', 'kind = "essay"', 12, "essay"),
        ('answer = "1"', "answer = 1", 14, "Expected `str`, got `int`"),
        ('answer = "1"', 'anwser = "1"', 14, "unknown key `anwser`"),
        ('answer = "1"\n', "", 10, "missing key `answer`"),
        ('id = "second"', 'id = "first"', 11, "used twice"),
        ('answer = "1"', 'answer = "1"\nparams = { p = [9, 3] }', 15, "p must be [low, high]"),
        ('answer = "1"', 'answer = "1"\nparams = { p = [1, "x"] }', 15, "p must be [low, high]"),
        ('answer = "1"', 'answer = "1"\nparams = { p = [] }', 15, "p has no values"),
        ('answer = "1"', 'answer = "1"\nparams = { answer = [1, 2] }', 15, "cannot be the name"),
        ('answer = "1"', 'answer = "1"\ntolerance = -0.5', 15, "negative"),
    ],
)
def test_a_bad_quiz(write_course: Write, old: str, new: str, line: int, reason: str) -> None:
    text = QUESTION + "\n" + QUESTION.replace("first", "second").replace(old, new)
    lesson = load_course(_one(write_course, quiz_toml=text))["a"]
    with pytest.raises(CourseError) as caught:
        read_quiz(lesson)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"content/01-a/quiz.toml:{line}: ")


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ('[{ text = "a", why = "", correct = true }]', "at least two"),
        ('[{ text = "a", why = "" }, { text = "b", why = "" }]', "exactly one"),
        (
            '[{ text = "a", why = "", correct = true }, { text = "b", why = "", correct = true }]',
            "exactly one",
        ),
    ],
)
def test_a_bad_choice(write_course: Write, choices: str, reason: str) -> None:
    text = f'[[question]]\nid = "x"\nkind = "choice"\nask = "?"\nchoices = {choices}\n'
    lesson = load_course(_one(write_course, quiz_toml=text))["a"]
    with pytest.raises(CourseError, match=rf"quiz.toml:5: .*{reason}"):
        read_quiz(lesson)


LAB = 'kind = "paged"\ntitle = "T"\nphenomenon = "P."\nwatch = ["W."]\n'


def test_a_lab_asks_only_what_the_quiz_has(write_course: Write) -> None:
    lesson = load_course(_one(write_course, quiz_toml=QUESTION, lab_toml=LAB + 'predict = ["fist"]\n'))["a"]
    with pytest.raises(CourseError, match=r"lab.toml:5: predict names 'fist'"):
        read_lab(lesson)


def test_a_lab_is_read(write_course: Write) -> None:
    knobs = 'knobs = { block_size = 8, policy = "fcfs", cache = true }\npredict = ["first"]\n'
    lesson = load_course(_one(write_course, quiz_toml=QUESTION, lab_toml=LAB + knobs))["a"]
    lab = read_lab(lesson)
    assert lab is not None
    assert lab.knobs == {"block_size": 8, "policy": "fcfs", "cache": True}
    assert lab.predict == ("first",)


def test_quiz_and_lab_are_optional(write_course: Write) -> None:
    lesson = load_course(write_course({"a": []}, written=["a"]))["a"]
    assert read_quiz(lesson) == ()
    assert read_lab(lesson) is None
