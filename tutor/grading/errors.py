"""What can keep an exercise from being graded, as one tree of exceptions.

    GradingError
    ├── ExerciseError     an exercise folder is wrong: the author has to repair it
    ├── AuthorError       `tutor author new` cannot make what was asked for
    ├── UnknownExercise   no exercise has this id
    ├── SourceError       the learner's file cannot be read as Python text
    ├── WorkspaceError    a file of the workspace cannot be read or written
    ├── ReplyError        the guest sent something that is not an answer
    └── JudgeError        the judge could not start, or ended without a verdict
        └── CheckCancelled   the check was stopped on request

`str(error)` is one sentence for the user. A wrong answer is not an error: it is a verdict.
"""

from __future__ import annotations


class GradingError(Exception):
    """Base of all errors of this package."""


class ExerciseError(GradingError):
    """An exercise's files contradict the schema; the text names file and reason."""


class AuthorError(GradingError):
    """A new lesson cannot be made: its id is taken or of another form, or the disk refuses."""


class UnknownExercise(GradingError):
    """There is no exercise with this id."""


class SourceError(GradingError):
    """The learner's file is missing, a folder, too big or not UTF-8 text."""


class WorkspaceError(GradingError):
    """The workspace folder or a file in it cannot be used."""


class NoAnswer(Exception):
    """A call of the learner's code brought no value: it raised, ended, or was too slow. Becomes a verdict."""


class ReplyError(GradingError, NoAnswer):
    """What came over the guest's pipe is not an answer of the runner to this call."""


class JudgeError(GradingError):
    """There is no verdict: the judge could not start, lacks its model or ended early."""
