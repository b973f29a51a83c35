"""Asks a question with fresh numbers and scores the answer. No state: the caller keeps the journal."""

from __future__ import annotations

import random
import re
from typing import Any

import msgspec

from tutor.curriculum.errors import CourseError
from tutor.curriculum.formatters import commas
from tutor.curriculum.render import evaluate, names_for, render_string
from tutor.curriculum.schema import ChoiceSpec, NumberSpec, Param, Question, Values
from tutor.curriculum.toml_file import line_of, read_text

# Answers are computed in floating point: this much is rounding, not a wrong answer.
_ROUNDING = 1e-9
_HUGE = 1e300
# A wrong number is recognised even when the learner rounded it.
_WRONG_SLACK = 0.005
_NUMBER = re.compile(r"([-+]?(?:(?:\d{1,3}(?:[,_ ]\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*(\D*)")


class AnswerNotUnderstood(ValueError):
    """What was typed is no number, or no choice; the message says what to type. Nothing is scored."""


class Scored(msgspec.Struct, frozen=True):
    """The verdict on one answer. `answer` and `expected` are texts for the reader, with the unit."""

    correct: bool
    explanation: str
    answer: str
    expected: str


class Asked(msgspec.Struct, frozen=True):
    """A question with its numbers chosen.

    `choices` is empty for a number. `expected` is the number, or the index of the correct choice.
    `answer_notes` hold what to say to a recognised answer: (value, text); for a choice, one an index.
    """

    lesson: str
    id: str
    kind: str
    prompt: str
    unit: str
    choices: tuple[str, ...]
    expected: float
    tolerance: float
    explain: str
    answer_notes: tuple[tuple[float, str], ...]
    params: dict[str, int | float | str]

    def score(self, answer: str | float) -> Scored:
        """Scores a typed text, a number, or the index of a choice. Raises AnswerNotUnderstood."""
        if self.kind == "choice":
            return self._score_choice(answer)
        value = parse_number(answer, self.unit) if isinstance(answer, str) else answer
        correct = _near(value, self.expected, self.tolerance)
        note = "" if correct else self._note(value)
        explanation = " ".join(part for part in (note, self.explain) if part)
        return Scored(correct, explanation, self._shown(value), self._shown(self.expected))

    def _score_choice(self, answer: str | float) -> Scored:
        index = _choice_index(answer, self.choices)
        correct = index == self.expected
        right = int(self.expected)
        parts = [self.answer_notes[index][1]]
        if not correct:
            parts.append(self.answer_notes[right][1])
        parts.append(self.explain)
        explanation = " ".join(part for part in parts if part)
        return Scored(correct, explanation, self.choices[index], self.choices[right])

    def _note(self, value: float) -> str:
        """What to say to a recognised wrong number; the nearest one wins, since people round."""
        slack = max(self.tolerance, _WRONG_SLACK)
        near = [(abs(value - known), text) for known, text in self.answer_notes if _near(value, known, slack)]
        return min(near)[1] if near else ""

    def _shown(self, value: float) -> str:
        shown = commas(int(value)) if float(value).is_integer() else commas(value)
        return f"{shown} {self.unit}".strip()


def instantiate(question: Question, rng: random.Random) -> Asked:
    """The question with numbers drawn from `rng`. Raises CourseError (file, line) for a bad template."""
    spec = question.spec
    params = {name: _draw(param, rng) for name, param in spec.params.items()}
    names = names_for(question.folder) | params
    if isinstance(spec, NumberSpec):
        return _number(question, spec, params, names)
    return _choice(question, spec, params, names, rng)


def parse_number(text: str, unit: str = "") -> float:
    """The number in "1,234", "22.5 MiB" or "43x". Raises AnswerNotUnderstood."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise AnswerNotUnderstood("Type one number, with a point for decimals, for example 12.5.")
    rest = match.group(2).strip().casefold()
    if rest and rest not in (unit.casefold(), "x", "×", "%"):
        wanted = f"in {unit}" if unit else "without a unit"
        raise AnswerNotUnderstood(f"Type the number {wanted}.")
    return float(re.sub(r"[,_ ]", "", match.group(1)))


def _number(question: Question, spec: NumberSpec, params: dict[str, Any], names: dict[str, Any]) -> Asked:
    at = _Place(question)
    expected = at.number("answer", spec.answer, names)
    names = names | {"answer": int(expected) if expected.is_integer() else expected}
    return Asked(
        lesson=question.lesson,
        id=question.id,
        kind="number",
        prompt=at.text("ask", spec.ask, names),
        unit=spec.unit,
        choices=(),
        expected=expected,
        tolerance=spec.tolerance,
        explain=at.text("explain", spec.explain, names),
        answer_notes=tuple(
            (at.number("wrong", wrong.answer, names), at.text("wrong", wrong.why, names))
            for wrong in spec.wrong
        ),
        params=params,
    )


def _choice(
    question: Question, spec: ChoiceSpec, params: dict[str, Any], names: dict[str, Any], rng: random.Random
) -> Asked:
    at = _Place(question)
    choices = list(spec.choices)
    if spec.shuffle:
        rng.shuffle(choices)
    right = next(index for index, choice in enumerate(choices) if choice.correct)
    return Asked(
        lesson=question.lesson,
        id=question.id,
        kind="choice",
        prompt=at.text("ask", spec.ask, names),
        unit="",
        choices=tuple(at.text("choices", choice.text, names) for choice in choices),
        expected=right,
        tolerance=0.0,
        explain=at.text("explain", spec.explain, names),
        answer_notes=tuple(
            (float(index), at.text("choices", choice.why, names)) for index, choice in enumerate(choices)
        ),
        params=params,
    )


class _Place:
    """Renders strings of one question; a fault gets the file and line of the key that holds it."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def text(self, key: str, source: str, names: dict[str, Any]) -> str:
        try:
            return render_string(source, names).strip()
        except CourseError as error:
            raise self._placed(key, error.reason, source) from None

    def number(self, key: str, expression: str, names: dict[str, Any]) -> float:
        try:
            value = evaluate(expression, names)
        except CourseError as error:
            raise self._placed(key, error.reason, expression) from None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _HUGE:
            raise self._placed(key, f"{expression!r} gives no number that can be asked for", expression)
        return float(value)

    def _placed(self, key: str, reason: str, source: str) -> CourseError:
        path = self._question.folder / "quiz.toml"
        text = read_text(path)
        ids = re.findall(r"""(?m)^\s*id\s*=\s*["']([^"']+)["']""", text)
        index = ids.index(self._question.id) if self._question.id in ids else 0
        line = line_of(text, key, ("question", index))
        # A list spreads over lines: the string itself is the better place, unless it was escaped.
        below = (number for number, x in enumerate(text.splitlines(), 1) if number >= line and source in x)
        line = next(below, line)
        return CourseError(f"question {self._question.id!r}: {reason}", path, line)


def _draw(param: Param, rng: random.Random) -> int | float | str:
    if isinstance(param, Values):
        return rng.choice(param.values)
    low, high = param[0], param[-1]
    if isinstance(low, int) and isinstance(high, int):
        return rng.randint(low, high)
    return rng.choice(param)


def _near(value: float, expected: float, tolerance: float) -> bool:
    return abs(value - expected) <= max(tolerance, _ROUNDING) * abs(expected)


def _choice_index(answer: str | float, choices: tuple[str, ...]) -> int:
    """0-based index from a number, or from a letter (a, b, …) or the choice's own text."""
    if isinstance(answer, str):
        wanted = answer.strip().casefold()
        texts = [choice.casefold() for choice in choices]
        if wanted in texts:
            return texts.index(wanted)
        index = ord(wanted) - ord("a") if len(wanted) == 1 else -1
    else:
        index = int(answer)
    if not 0 <= index < len(choices):
        raise AnswerNotUnderstood(f"Choose one of a to {chr(ord('a') + len(choices) - 1)}.")
    return index
