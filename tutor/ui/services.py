"""What the screens need from the rest of the tutor, in one object that the App hands around.

Nothing here draws. A failure of the disk or of a course file becomes a sentence in `problems`; the
screens stay usable without the part that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tutor.curriculum.dag import Course
from tutor.curriculum.mastery import LessonState, lesson_states
from tutor.journal.events import AnyEvent
from tutor.journal.progress import Progress, fold
from tutor.journal.store import Journal, JournalError

if TYPE_CHECKING:
    from tutor.grading.client import JudgeClient
    from tutor.grading.workspace import Workspace
    from tutor.labs.scenario import Knobs, LabKind
    from tutor.labs.session import LabSession
    from tutor.trace.store import TraceStore

LabFactory = Callable[["LabKind", "Knobs", "str | None", "TraceStore | None"], "LabSession"]
JudgeFactory = Callable[["str | None"], "JudgeClient"]
WorkspaceFactory = Callable[["Path | None"], "Workspace"]


class Services:
    """Course, journal and the makers of what is only needed later (judge, workspace, lab session)."""

    def __init__(
        self,
        course: Course,
        journal: Journal,
        *,
        model: str | None = None,
        workspace: Path | None = None,
        problems: Sequence[str] = (),
        make_lab: LabFactory | None = None,
        make_judge: JudgeFactory | None = None,
        make_workspace: WorkspaceFactory | None = None,
        fps: int = 10,
        n_gpu_layers: int = 0,
    ) -> None:
        self.course = course
        self.journal = journal
        self.model = model
        self.fps = fps
        self.n_gpu_layers = n_gpu_layers
        self.problems = list(problems)
        self._workspace_folder = workspace
        self._make_lab = make_lab or _lab
        self._make_judge = make_judge or _judge
        self._make_workspace = make_workspace or _workspace
        self._judge: JudgeClient | None = None
        self._events: list[AnyEvent] = []
        self._progress: Progress | None = None
        self._states: dict[str, LessonState] | None = None
        try:
            contents = journal.read()
            self._events.extend(contents.events)
            self.problems.extend(contents.warnings)
        except JournalError as error:
            self.problems.append(str(error))

    @property
    def progress(self) -> Progress:
        if self._progress is None:
            self._progress = fold(self._events)
        return self._progress

    @property
    def states(self) -> dict[str, LessonState]:
        if self._states is None:
            self._states = lesson_states(self.course, self.progress)
        return self._states

    def record(self, event: AnyEvent) -> str:
        """Put the event into the journal. Returns "" or the sentence why it could not be written.

        The event counts for this session either way, so a read-only disk does not stop anybody.
        """
        self._events.append(event)
        self._progress = self._states = None
        try:
            self.journal.append(event)
        except JournalError as error:
            return str(error)
        return ""

    def lab(self, kind: LabKind, knobs: Knobs, trace: TraceStore | None = None) -> LabSession:
        session = self._make_lab(kind, knobs, self.model, trace)
        session.n_gpu_layers = self.n_gpu_layers
        return session

    @property
    def judge(self) -> JudgeClient:
        """One judge for the whole app; it is started by its first user."""
        if self._judge is None:
            self._judge = self._make_judge(self.model)
        return self._judge

    @property
    def workspace(self) -> Workspace:
        return self._make_workspace(self._workspace_folder)

    async def close(self) -> None:
        if self._judge is not None:
            await self._judge.close()
            self._judge = None


def _lab(kind: LabKind, knobs: Knobs, model: str | None, trace: TraceStore | None) -> LabSession:
    from tutor.labs.session import LabSession

    return LabSession(kind, knobs, model, trace=trace)


def _judge(model: str | None) -> JudgeClient:
    from tutor.grading.client import JudgeClient

    return JudgeClient(model=model)


def _workspace(folder: Path | None) -> Workspace:
    from tutor.grading.workspace import Workspace

    return Workspace(folder)
