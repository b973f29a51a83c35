"""How a check ends that found a wrong answer."""

from __future__ import annotations

from tutor.grading.recorder import MoveRecorder


class CheckFailed(Exception):
    """Ends a check: the answer is wrong. Raised by the `expect` methods and by `fail`."""

    def __init__(
        self,
        sentence: str,
        *,
        expected: str = "",
        actual: str = "",
        where: str = "",
        misconception: str = "",
        trace: str = "",
        step: int | None = None,
        recording: MoveRecorder | None = None,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.expected = expected
        self.actual = actual
        self.where = where
        self.misconception = misconception
        self.trace = trace
        self.step = step
        self.recording = recording
